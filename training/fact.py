"""Facts: what can be told, asked for, remembered and forgotten. Each kind is a row of wordings.

{a} what it is about   {s} "a's"   {v} its value   {n} a person   {o} an owner
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from training.draw import Draw, cap
from training.words import FAMILY, FAVOURITES, NOUNS, PETS

UNKNOWN = "I don't know that. You have not told me yet."


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fact."""

    told: tuple[str, ...]
    asked: tuple[str, ...]
    embedded: tuple[str, ...]
    """Questions within another sentence: "what my name is"."""
    noun: str
    """What is asked for as a thing: "my name"; empty for none."""
    answer: str
    key: str
    """Under which it is stored, and searched for."""


KINDS: dict[str, tuple[float, Kind]] = {
    "name": (9, Kind(
        ("my name is {v}", "I am called {v}", "I am {v}", "you can call me {v}", "my name's {v}", "people call me {v}",
         "I'm {v}",
         "they call me {v}", "everyone calls me {v}", "I go by {v}", "{v} is my name", "the name is {v}",
         "my friends call me {v}", "{v} is what people call me", "I go by the name {v}", "this is {v}",
         "I was given the name {v}", "my name would be {v}", "{v} is the name I go by", "I answer to {v}",
         "the one who writes this is {v}"),
        ("What is my name?", "What's my name?", "Who am I?", "What am I called?", "What should you call me?",
         "Say my name.", "How am I called?", "Do you know my name?",
         "My name?", "What did I say my name is?", "my name, what was it?", "What name did I give you?", "name?",
         "Tell me who I am.", "Who is talking to you?", "Do you remember what I am called?",
         "What do people call me?",
         "my name pls", "By which name do I go?", "You remember my name, right?", "Which name is mine?",
         "So who am I?", "What name do I have?", "How do people call me?", "Could you give me my name?",
         "Can you say who I am?", "what's the name I told you?", "My name is what?", "Tell me how I am called.",
         "I am who?",
         "name please", "Did I tell you my name?", "Which name did I mention?", "And what was I called again?",
         "do u know who i am", "What do my friends call me?", "Whoami?", "who am I", "Who am I again?",
         "Who am I to you?", "whats my name", "whats my name?", "tell me my name", "Tell me my name, please.",
         "Please tell me my name.", "say my name please", "Can you tell me my name?", "can you say my name?",
         "Could you tell me who I am?", "do you know my name", "Do you know who I am?", "Do you remember me?",
         "do you remember my name?", "remember my name?", "What was my name?", "what was my name again",
         "Now what is my name?", "what do you call me?", "You know who I am?", "I forgot who I am."),
        ("what my name is", "who I am",
         "what I am called", "what my name was", "what you should call me", "which name I have",
         "how I am called"), "my name", "Your name is {v}.", "name")),
    "pet": (11, Kind(
        ("my {a} is called {v}", "my {a} is named {v}", "my {s} name is {v}", "the name of my {a} is {v}",
         "I have a {a} called {v}", "I call my {a} {v}", "I have a {a} named {v}",
         "I named my {a} {v}", "our {a} is called {v}", "{v} is the name of my {a}", "my {a} goes by {v}",
         "my {a} answers to the name {v}", "we call our {a} {v}", "{v} is what I call my {a}",
         "I gave my {a} the name {v}", "my {a} has the name {v}", "the name I gave my {a} is {v}",
         "I own a {a} whose name is {v}", "there is a {a} at my place named {v}", "my little {a} is called {v}",
         "we named our {a} {v}", "{v} is how my {a} is called"),
        ("What is my {a} called?", "What's my {a} called?", "What is my {s} name?", "What is the name of my {a}?",
         "How is my {a} called?", "What did I name my {a}?", "What's the name of my {a}?", "What do I call my {a}?",
         "My {s} name?", "What was my {s} name again?", "my {s} name pls", "What name did I give my {a}?",
         "{a} name?",
         "Do you remember what my {a} is called?", "Do you know my {s} name?", "my {a} is called what?",
         "Which name does my {a} have?", "My {a}, what is it called?", "What did I say my {a} is called?",
         "Tell me my {s} name.", "By which name does my {a} go?", "The name of my {a}?", "How did I call my {a}?",
         "What was my {a} called?", "Say the name of my {a}.", "I have a {a}, what is its name?", "name of my {a}",
         "Which name did I tell you for my {a}?", "My {s} name is what?", "To which name does my {a} answer?",
         "Can you give me the name of my {a}?", "You know my {s} name, right?", "And my {a}, what's the name?",
         "What do I call that {a} of mine?", "What have I named my {a}?", "Could you give me my {s} name?",
         "the name of our {a}?"),
        ("what my {a} is called", "what my {s} name is",
         "what I call my {a}", "which name my {a} has", "what name I gave my {a}", "what my {a} was called",
         "how my {a} is called"), "the name of my {a}", "Your {a} is called {v}.", "{a} name")),
    "family": (9, Kind(
        ("my {a} is called {v}", "my {a} is named {v}", "my {s} name is {v}", "the name of my {a} is {v}",
         "I have a {a} called {v}",
         "my {a} goes by {v}", "{v} is the name of my {a}", "they call my {a} {v}", "my {a} has the name {v}",
         "{v} is what my {a} is called", "everyone calls my {a} {v}", "our {a} is called {v}",
         "the {a} I have is called {v}", "when I say {v} I mean my {a}", "my dear {a} is named {v}",
         "{v} is how my {a} is called", "my {a} answers to the name {v}"),
        ("What is my {a} called?", "What is my {s} name?", "What is the name of my {a}?", "Who is my {a}?",
         "How is my {a} called?", "What's my {s} name?", "What's my {a} called?",
         "My {s} name?", "my {s} name pls", "What was my {s} name again?", "What did I say my {a} is called?",
         "Who was my {a} again?", "Do you know my {s} name?", "Do you remember who my {a} is?",
         "my {a} is called what?", "Which name does my {a} have?", "What's the name of my {a}?",
         "My {a}, what is the name?", "Tell me my {s} name.", "By which name does my {a} go?",
         "How do they call my {a}?", "What name has my {a}?", "The name of my {a}?",
         "What name did I give for my {a}?", "Which person is my {a}?", "name of my {a}", "Say my {s} name.",
         "My {s} name is what?", "Did I tell you my {s} name?", "Can you give me the name of my {a}?",
         "who's my {a}?",
         "What do people call my {a}?", "What was my {a} called?", "You know who my {a} is, right?",
         "Could you give me my {s} name?"),
        ("what my {a} is called", "who my {a} is",
         "what my {s} name is", "what the name of my {a} is", "which name my {a} has", "what my {a} was called",
         "how my {a} is called"), "the name of my {a}", "Your {a} is called {v}.", "{a} name")),
    "favourite": (10, Kind(
        ("my favourite {a} is {v}", "the {a} I like best is {v}", "{v} is my favourite {a}", "my favorite {a} is {v}",
         "of all I like the {a} {v} best",
         "my top {a} is {v}", "the {a} I love most is {v}", "{v} is the {a} I like most", "my {a} of choice is {v}",
         "no {a} beats {v} for me", "the best {a} for me is {v}", "I prefer {v} to every other {a}",
         "{v} is my favorite {a}", "the {a} I prefer is {v}", "my number one {a} is {v}",
         "as for the {a}, my favourite is {v}", "if I have to choose one {a} it is {v}", "for me {v} is the best {a}",
         "my favourite {a} has always been {v}", "when it comes to the {a} I like {v} most"),
        ("What is my favourite {a}?", "What's my favourite {a}?", "Which {a} do I like best?", "What {a} do I prefer?",
         "Which {a} is my favourite?", "What is my favorite {a}?", "What {a} do I like best?",
         "My favourite {a}?", "favourite {a}?", "What {a} do I love most?", "What was my favourite {a} again?",
         "What did I say my favourite {a} is?", "my favorite {a} pls", "my favourite {a}, what was it?",
         "Which {a} do I prefer?", "Do you know my favourite {a}?", "Which {a} did I say I like best?",
         "What's my number one {a}?", "Tell me which {a} I like best.", "The {a} I like best is which one?",
         "What is my {a} of choice?", "Do you remember my favourite {a}?", "what's my top {a}",
         "Which is the {a} that I love?", "What's the {a} I like most?", "My favourite {a} is what?",
         "Of all, what {a} do I like most?", "Can you give me my favourite {a}?", "Name my favourite {a}.",
         "What's my fav {a}?", "Which {a} would I choose?", "What {a} did I call my favourite?",
         "You know which {a} I like best?", "When it comes to the {a}, what do I like most?",
         "Which {a} is the one I prefer?"),
        ("what my favourite {a} is", "which {a} I like best",
         "which {a} I prefer", "what my favorite {a} is", "what {a} I love most", "which {a} is my favourite",
         "which {a} I like most"), "my favourite {a}", "Your favourite {a} is {v}.",
        "favourite {a}")),
    "home": (5, Kind(
        ("I live in {v}", "my home is in {v}", "I moved to {v}", "I have a flat in {v}",
        "I come from {v} and live there",
         "I am living in {v}", "my house is in {v}", "{v} is where I live", "my flat is in {v}",
         "the city I live in is {v}", "I am based in {v}", "I reside in {v}", "my home town is {v}", "{v} is my home",
         "we live in {v}", "I am at home in {v}", "I have a place in {v}", "the town where I live is {v}",
         "my family and I live in {v}", "I settled in {v}"),
        ("Where do I live?", "Which city do I live in?", "Where is my home?", "In which city do I live?",
         "What city do I live in?", "Which town do I live in?",
         "What is my home town?", "Where am I living?", "What did I say, where do I live?", "where do i live again?",
         "Where is my house?", "Which place do I live in?", "which city am I living in?", "Where am I based?",
         "Where did I say I live?",
         "I live where?", "Do you know where I live?", "Tell me where I live.", "Do you remember my home town?",
         "The city I live in?", "In what place do I live?", "Where's home for me?", "Which city is my home?",
         "my home town pls", "Where do I reside?", "What town is my home in?", "Where is it that I live?",
         "What's the city I live in?", "Did I tell you where I live?", "Say where I live.", "Where is my flat?",
         "Which city did I say I live in?", "Whereabouts do I live?", "So where am I at home?"),
        ("where I live", "which city I live in",
         "in which city I live", "where my home is", "which town is my home", "what city I live in",
         "where I am living"), "", "You live in {v}.", "home")),
    "work": (4, Kind(
        ("I work at {v}", "I work for {v}", "my job is at {v}",
         "my employer is {v}", "I am employed at {v}", "{v} is where I work", "I have a job at {v}",
         "the company I work for is {v}", "{v} is my employer", "my work is at {v}", "I got a job at {v}",
         "the place where I work is {v}", "I do my job at {v}", "I earn my money at {v}", "I am working for {v}",
         "I spend my working days at {v}"),
        ("Where do I work?", "Who do I work for?", "Where is my job?", "Which company do I work for?",
         "Who is my employer?", "What company do I work for?",
         "Where am I employed?", "Who pays me?", "my employer?", "Where do I have my job?", "What is my workplace?",
         "Which company employs me?", "where do i work again?", "Where did I say I work?",
         "At which company do I work?", "I work where?", "Do you know where I work?", "Tell me where I work.",
         "What's my employer called?", "Who employs me?", "The company I work for?", "Where is my work?",
         "who i work for pls", "For whom do I work?", "What's the company I work for?", "Where do I earn my money?",
         "Do you remember who I work for?", "What's the name of my employer?", "Who is it that I work for?",
         "Which firm do I work at?", "Did I tell you where I work?", "At what place do I work?", "I work for whom?",
         "Who did I say I work for?"),
        ("where I work", "who I work for",
         "which company I work for", "who my employer is", "where my job is", "who employs me"), "",
         "You work at {v}.", "work")),
    "mine": (16, Kind(
        ("my {a} is {v}", "my {a}: {v}", "{v} is my {a}", "I have a {a}, it is {v}", "for my {a} I have {v}",
         "my {a} would be {v}", "the {a} I have is {v}", "{v} is what my {a} is", "I've got {v} as my {a}",
         "my own {a} is {v}", "my {a} happens to be {v}", "as my {a} I have {v}", "I use {v} as my {a}",
         "my {a} = {v}", "my current {a} is {v}", "I picked {v} for my {a}", "my {a} should be {v}",
         "what I have as my {a} is {v}", "my {a} is now {v}", "the {a} of mine is {v}"),
        ("What is my {a}?", "What's my {a}?", "What was my {a}?", "Which one is my {a}?", "What did I say my {a} is?",
         "What is my {a} again?",
         "{a}?", "My {a}?", "Do you remember my {a}?", "Which {a} do I have?", "What did I tell you my {a} is?",
         "my {a} pls", "What {a} did I mention?", "my {a}, what was it?", "Can you give me my {a}?",
         "What {a} do I have?", "My {a} is what?", "Do you know my {a}?", "What did I tell you about my {a}?",
         "Which {a} is mine?", "Tell me my {a}.", "What do I have as my {a}?", "And my {a} was?",
         "Give me my {a} again.",
         "So what's my {a}?", "what was my {a} again", "Which {a} did I say I have?", "I forgot my {a}.",
         "Did I tell you my {a}?", "What did I give as my {a}?", "Let me have my {a}.",
         "What do you have for my {a}?",
         "What would my {a} be?", "Could I have my {a}, please?", "the {a} of mine?",
         "What do you know about my {a}?"),
        ("what my {a} is",
         "what my {a} was", "which {a} I have", "what I said my {a} is", "which {a} is mine",
         "what {a} I told you",), "my {a}", "Your {a} is {v}.", "{a}")),
    "the": (18, Kind(
        ("the {a} is {v}", "the {a}: {v}", "the {a} = {v}", "{v} is the {a}", "we have {v} as the {a}",
         "the {a} would be {v}", "our {a} is {v}", "{v} is what the {a} is", "the {a} we use is {v}",
         "the {a} should be {v}", "as the {a} we have {v}", "the {a} happens to be {v}", "we use {v} as the {a}",
         "the {a} is now {v}", "for the {a} it is {v}", "we agreed on {v} for the {a}", "it says {v} for the {a}",
         "the {a} is set to {v}", "what we have for the {a} is {v}", "they told me the {a} is {v}"),
        ("What is the {a}?", "What's the {a}?", "What was the {a}?", "Which one is the {a}?",
         "What did I say the {a} is?", "What is the {a} again?",
         "{a}?", "The {a}?", "the {a} pls", "Which {a} is it?", "What did I tell you the {a} is?",
         "What {a} do we have?", "the {a}, what was it?", "What {a} did I mention?", "Can you give me the {a}?",
         "The {a} is what?", "What did I tell you about the {a}?", "Do you remember the {a}?", "Do you know the {a}?",
         "And the {a} was?", "What do we have as the {a}?", "So what's the {a}?", "Tell me the {a}.",
         "Which {a} did I tell you?", "What would the {a} be?", "what was the {a} again", "Let me have the {a}.",
         "What {a} are we talking about?", "Give me the {a} again.", "What do you have for the {a}?",
         "I forgot the {a}.",
         "what's the {a} then?", "What did I give as the {a}?", "I need to know the {a}.", "Which {a} do we use?",
         "What do you know about the {a}?"),
        ("what the {a} is",
         "what the {a} was", "which {a} we have", "what I said the {a} is", "which {a} it is",
         "what {a} I told you",), "the {a}", "The {a} is {v}.", "{a}")),
    "of": (9, Kind(
        ("the {a} of {o} is {v}", "the {a} for {o} is {v}", "{o} has the {a} {v}", "as {a} {o} has {v}",
         "{v} is the {a} of {o}",
         "{o}'s {a} is {v}", "for {o} the {a} is {v}", "{o} has {v} as the {a}", "{v} is the {a} for {o}",
         "the {a} that {o} has is {v}", "with {o} the {a} is {v}", "{o} uses {v} as the {a}",
         "{v} is the {a} that {o} has", "the {a} belonging to {o} is {v}", "{v} is {o}'s {a}",
         "the {a} we have for {o} is {v}", "they gave {o} the {a} {v}", "the {a} of {o} would be {v}",
         "in the case of {o} the {a} is {v}", "{o} got {v} as the {a}"),
        ("What is the {a} of {o}?", "What's the {a} of {o}?", "Which {a} does {o} have?", "What {a} has {o}?",
         "What is the {a} for {o}?", "What was the {a} of {o}?",
         "What is {o}'s {a}?", "{o}'s {a}?", "The {a} of {o}?", "What {a} does {o} have?",
         "What did I say the {a} of {o} is?", "the {a} of {o} pls", "Which {a} is the one of {o}?",
         "What's {o}'s {a} again?", "For {o}, what is the {a}?", "Do you know the {a} of {o}?", "{a} of {o}?",
         "What does {o} have as the {a}?", "Do you remember {o}'s {a}?", "The {a} of {o} is what?",
         "Tell me {o}'s {a}.", "What {a} did I tell you for {o}?", "Which {a} belongs to {o}?", "{o} has which {a}?",
         "What's the {a} for {o}?", "the {a} of {o}, what was it?", "Can you give me the {a} of {o}?",
         "And {o}'s {a}?", "What did I tell you about the {a} of {o}?", "which {a} has {o} again?",
         "Which {a} has {o}?",
         "What's the {a} that {o} has?", "Give me {o}'s {a}.", "Which {a} did {o} get?", "What {a} goes with {o}?",
         "So what's the {a} of {o}?"),
        ("what the {a} of {o} is", "which {a} {o} has",
         "what {o}'s {a} is", "what {a} {o} has", "what the {a} for {o} is", "which {a} belongs to {o}",
         "what the {a} of {o} was"), "the {a} of {o}", "The {a} of {o} is {v}.", "{a} of {o}")),
    "lives": (3, Kind(
        ("{n} lives in {v}",
         "{n} has a home in {v}", "{v} is where {n} lives", "{n} is living in {v}", "the home of {n} is in {v}",
         "{n} moved to {v}", "the city {n} lives in is {v}", "{n} has a flat in {v}", "{n} is at home in {v}",
         "{n} resides in {v}", "{n} lives over in {v}",), ("Where does {n} live?", "Which city does {n} live in?",
         "In which town does {n} live?",
         "Where is the home of {n}?", "What city does {n} live in?",
                                "Where is {n} at home?", "{n} lives where?", "Where did I say {n} lives?",
                                "Do you know where {n} lives?", "where does {n} live again?",
                                "Which place does {n} live in?", "Tell me where {n} lives.",
                                "What is the home town of {n}?", "Where is {n} living?",
                                "In which city does {n} live?", "Where does {n} have a home?",
                                "What town is {n} living in?", "So where does {n} live?", "The city {n} lives in?",
                                "And where does {n} live?"),
        ("where {n} lives",
         "which city {n} lives in", "where the home of {n} is", "in which town {n} lives",
         "where {n} is living",), "", "{n} lives in {v}.", "{n}")),
    "likes": (3, Kind(
        ("{n} likes {v}",
         "{n} loves {v}", "{n} is fond of {v}", "{v} is what {n} likes", "{n} enjoys {v}", "what {n} likes is {v}",
         "{n} is a fan of {v}", "{n} really likes {v}", "{n} is keen on {v}", "the thing {n} likes is {v}",
         "{n} is into {v}",), ("What does {n} like?", "What is it that {n} likes?", "Which thing does {n} like?",
         "What would {n} like?", "So what does {n} like?",
                             "{n} likes what?", "What did I say {n} likes?", "What is {n} fond of?",
                             "Do you know what {n} likes?", "what does {n} like again?", "What does {n} enjoy?",
                             "Tell me what {n} likes.", "What is it {n} is fond of?", "What's the thing {n} likes?",
                             "Of what is {n} a fan?", "What does {n} like so much?", "What is {n} into?",
                             "And what does {n} like?", "What does {n} love?",
                             "What is {n} keen on?"), ("what {n} likes",
                                                             "which thing {n} likes", "what it is that {n} likes",
                                                             "what {n} is fond of", "what {n} enjoys",), "",
                                                             "{n} likes {v}.", "{n}")),
    "plays": (2, Kind(
        ("{n} plays {v}",
         "{n} often plays {v}", "{v} is what {n} plays", "what {n} plays is {v}", "{n} is playing {v}",
         "the game {n} plays is {v}", "{n} plays a lot of {v}", "{n} can play {v}", "{n} plays {v} every week",
         "{n} always plays {v}", "{n} plays {v} with friends",), ("What does {n} play?", "Which game does {n} play?",
         "What is it that {n} plays?",
         "What game does {n} play?", "So what does {n} play?",
                             "{n} plays what?", "What did I say {n} plays?", "What is {n} playing?",
                             "Do you know what {n} plays?", "what does {n} play again?", "What can {n} play?",
                             "Tell me what {n} plays.", "What's the game {n} plays?", "Which game is {n} playing?",
                             "What does {n} often play?", "The game {n} plays?", "Say which game {n} plays.",
                             "And what does {n} play?", "Which game did I say {n} plays?",
                             "Which one does {n} play?"), ("what {n} plays",
                                                                 "which game {n} plays", "what it is that {n} plays",
                                                                 "what game {n} plays", "what {n} is playing",), "",
                                                                 "{n} plays {v}.", "{n}")),
}  # fmt: skip
AROUND = (
    "Tell me {}.", "Do you know {}?", "Do you remember {}?", "Can you tell me {}?", "Please tell me {}.",
    "I forgot {}.",
    "Could you remind me {}?", "Can you say {}?", "I would like to know {}.", "Any idea {}?", "Remind me {}.",
    "Do you still know {}?",
    "Would you tell me {}?", "Let me know {}.", "I want to know {}.", "Could you tell me {}?", "I can't remember {}.",
    "Do you happen to know {}?", "Please remind me {}.", "I have forgotten {}.", "tell me {} pls",
    "Would you know {}?", "Did I tell you {}?", "I wonder {}.", "You know {}, don't you?", "Have I told you {}?",
    "Can you recall {}?", "Tell me again {}.", "I need to know {}.", "I don't remember {}, do you?",
    "Just tell me {}.", "i forgot {} lol", "Do you have any idea {}?", "Would you mind telling me {}?",
    "May I ask {}?", "Are you able to tell me {}?", "I am not sure {}, can you help?", "Hey, do you know {}?",
    "I'd love to know {}.", "Be so kind and tell me {}.", "Did I mention {}?", "So tell me {}.",
)  # fmt: skip
ABOUT = (
    "Tell me {}.", "Remind me of {}.", "Do you know {}?", "Do you remember {}?", "Give me {}.", "I need {}.", "{}?",
    "And {}?", "What about {}?", "Can you recall {}?",
    "Please tell me {}.", "I forgot {}.", "Could I have {}?", "{} please", "Can I get {}?", "{} pls",
    "What was {} again?", "{}, what was it?", "Do you still know {}?", "I'd like to have {}.", "How about {}?",
    "Please give me {}.", "So {}?", "Could you remind me of {}?", "I am asking for {}.", "{}, please.",
    "Let me hear {}.", "Did I tell you {}?", "Any idea about {}?", "I can't think of {}.", "what about {} then?",
    "Back to {}: what is it?", "Can you tell me {}?", "I have forgotten {}.", "{} again?", "I was asking about {}.",
    "I would like to hear {}.",
)  # fmt: skip
BEFORE = (
    "Tell me: ", "Quick question: ", "So, ", "Now, ", "Hey, ", "Okay, ", "Please: ", "One more: ", "And ", "Well, ",
    "So tell me, ", "By the way, ", "Hi, ", "Oh, ", "And now, ", "Um, ", "One question: ", "Listen, ", "But ",
    "Right, ", "Hmm, ", "Excuse me, ", "Alright, ", "Just checking: ", "Hello! ", "I wonder, ", "Let me ask you: ",
    "Thanks. ", "ok ", "Next question: ", "Lamb, ", "Also, ", "I need your help: ", "Sorry, ", "Hi Lamb. ", "so ",
    "A small test: ", "Question: ", "Ah, ",
)  # fmt: skip
TELLING = (
    "{C}.", "{C}.", "{C}", "{c}", "By the way, {c}.", "FYI {c}.", "Just so you know, {c}.", "Hi, {c}.",
    "Note that {c}.",
    "You should know that {c}.", "Hello! {C}.", "For your information: {c}.", "{C}!", "Well, {c}.",
    "{C}, by the way.",
    "Just to let you know, {c}.", "So {c}.", "{C}, just so you know.", "Did I mention that {c}?",
    "I should say that {c}.", "Oh, and {c}.", "I wanted to tell you that {c}.", "Let me tell you: {c}.", "{C} btw",
    "As you may know, {c}.", "Okay, {c}.", "One thing: {c}.", "It's like this: {c}.", "I can tell you that {c}.",
    "To be clear, {c}.", "Hey, {c}!", "Actually, {c}.", "Let me say that {c}.", "{C}, if you want to know.",
    "You see, {c}.", "btw {c}", "Here is something about it: {c}.", "hi lamb, {c}", "First of all, {c}.",
    "The thing is, {c}.", "Good to know: {c}.", "You may like to know that {c}.", "Alright: {c}",
    "In case you wonder, {c}.", "{C}, ok?", "Well, you know, {c}.", "Hello Lamb. {C}.",
)  # fmt: skip
TOLD_TO_REMEMBER = (
    "Remember that {c}.", "Please remember that {c}.", "Remember: {c}", "Keep in mind that {c}.",
    "Don't forget that {c}.",
    "Can you remember that {c}?", "Remember {c}", "I want you to remember that {c}.", "Memorize that {c}.",
    "Make a note that {c}.",
    "Please don't forget that {c}.", "{C}. Remember that.", "You must remember that {c}.",
    "Could you please remember that {c}?", "Keep this in mind: {c}.", "remember pls: {c}",
    "{C}. Please remember this.", "I'd like you to remember that {c}.", "Try to remember that {c}.",
    "Memorize this: {c}", "{C}, remember that!", "Never forget that {c}.", "Please keep in mind that {c}.",
    "Remember this for later: {c}.", "{C}. Don't forget it.", "Commit to memory that {c}.",
    "Will you remember that {c}?", "{C}. Keep that in mind.", "Remember for me that {c}.", "Do not forget: {c}.",
    "Would you remember that {c}?", "Please memorize that {c}.", "For later, remember that {c}.",
    "Be sure to remember that {c}.", "remember {c}", "remember: {c}", "please remember {c}", "Please remember: {c}.",
    "remember that {c}", "Remember this: {c}.", "remember this: {c}", "Can you remember this? {C}.",
    "can you please remember that {c}", "Could you remember that {c}?", "dont forget that {c}", "dont forget: {c}",
    "Don't forget: {c}.", "I want you to remember: {c}.", "I need you to remember that {c}.", "Keep in mind: {c}.",
    "keep in mind that {c}", "Memorize: {c}.", "Lamb, remember that {c}.", "Hi, please remember that {c}.",
    "Now remember that {c}.", "You have to remember that {c}.", "{C}, remember it.", "{C}. Please don't forget it.",
    "Also remember that {c}.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fact:
    kind: str
    clause: str
    """Without a capital and a full stop, as it may stand in a sentence."""
    questions: tuple[str, ...]
    answer: str
    key: str
    value: str
    about: tuple[str, str, str, str] = ("", "", "", "")
    """The thing, the person, the owner, and the sort of the value."""

    @property
    def begun(self) -> str:
        """The clause at the beginning of a sentence; a value keeps its letters."""
        return self.clause if self.clause.startswith(self.value) else cap(self.clause)

    @property
    def topic(self) -> str:
        """What it is about; two facts with the same topic contradict each other."""
        return self.answer.replace(self.value, "")

    @property
    def names(self) -> frozenset[str]:
        """Other facts of one conversation must have others."""
        return frozenset({self.topic, self.key, self.value})


ON_A_DAY = ("{a} is on {v}", "{a} is on {v}", "{a} will be on {v}", "{a} takes place on {v}", "{a}: on {v}")
CALLED = ("{a} is called {v}", "{a} is named {v}", "the name of {a} is {v}", "we call {a} {v}", "{a} has the name {v}")
ASK_CALLED = (
    "What is {a} called?", "What's the name of {a}?", "How is {a} called?", "What is the name of {a}?",
    "what's {a} called", "Which name does {a} have?", "Do you know what {a} is called?",
    "Tell me what {a} is called.",
)  # fmt: skip


def again(draw: Draw, old: Fact) -> Fact:
    """The same with another value."""
    while True:
        new = fact(draw, old.kind, about=old.about)
        if new.value != old.value:
            return new


def fact(draw: Draw, kind: str = "", *, about: tuple[str, str, str, str] | None = None) -> Fact:
    kind = kind or draw.weighted([(name, share) for name, (share, _) in KINDS.items()])
    row = KINDS[kind][1]
    thing, (sort, value) = "", ("", "")
    match kind:
        case "pet":
            thing, value = draw.pick(PETS), draw.person()
        case "family":
            thing, value = draw.pick(FAMILY), draw.person()
        case "favourite":
            thing = draw.pick(FAVOURITES) if draw.often(0.75) else draw.word()
            value = draw.word() if draw.often(0.6) else draw.value()
        case "name":
            value = draw.name() if draw.often(0.7) else draw.person()
        case "home" | "lives":
            value = draw.place()
        case "work":
            value = draw.made(draw.name, lambda: f"{draw.name()} {draw.name()}", lambda: f"the {draw.pick(NOUNS)}")
        case "likes" | "plays":
            value = draw.made(draw.word, draw.name)
        case _:
            thing, (sort, value) = draw.noun() if kind != "of" else draw.pick(NOUNS), draw.kind_and_value()
    person, owner = draw.name(), draw.made(draw.name, lambda: f"the {draw.pick(NOUNS)}")
    if about is not None:
        thing, person, owner, before = about
        while sort != before:
            sort, value = draw.kind_and_value()
    slots = {"a": thing, "s": f"{thing}'s", "v": value, "n": person, "o": owner}
    told = draw.wording(row.told)
    asked = [draw.wording(row.asked) for _ in range(4)]
    asked.append(draw.wording(AROUND).format(draw.pick(row.embedded)))
    if row.noun:
        asked.append(draw.wording(ABOUT).format(row.noun))
        if sort == "date":
            asked += [f"When is {row.noun}?"] * 2
            if kind in {"mine", "the"} and draw.often(0.5) and ":" not in value:
                told = draw.wording(ON_A_DAY).replace("{a}", row.noun)
        if sort == "name" and kind in {"mine", "the"} and draw.often(0.4):
            told = draw.wording(CALLED).replace("{a}", row.noun)
            asked += [draw.wording(ASK_CALLED).replace("{a}", row.noun) for _ in range(2)]
    questions = tuple(cap(each.format(**slots)) for each in asked)
    return Fact(
        kind,
        told.format(**slots),
        questions,
        cap(row.answer.format(**slots)),
        row.key.format(**slots),
        value,
        (thing, person, owner, sort),
    )


def facts(draw: Draw, n: int, *, but: Sequence[Fact] = ()) -> list[Fact]:
    """So many facts, no two about the same, and none about the same as one of `but`."""
    used = {name for each in but for name in each.names}
    found: list[Fact] = []
    while len(found) < n:
        new = fact(draw)
        if used.isdisjoint(new.names):
            used |= new.names
            found.append(new)
    return found


def near(draw: Draw, known: Sequence[Fact]) -> Fact:
    """A fact that is not among those that are known; often of the kind of one of them."""
    used = {name for each in known for name in each.names} | {each.key.split()[0] for each in known}
    while True:
        new = fact(draw, draw.pick(known).kind if known and draw.often(0.5) else "")
        if used.isdisjoint(new.names) and new.key.split()[0] not in used:
            return new


def statement(draw: Draw, each: Fact, wordings: Sequence[str] = (*TELLING, *TOLD_TO_REMEMBER)) -> str:
    return draw.wording(wordings).format(c=each.clause, C=each.begun)


def together(each: Sequence[Fact]) -> str:
    """Several facts in one message."""
    return " ".join(f"{one.begun}." for one in each)


def acknowledgement(draw: Draw, each: Fact) -> str:
    return draw.of(f"Got it. {each.answer}", f"Noted. {each.answer}")


def question(draw: Draw, each: Fact) -> str:
    asked = draw.pick(each.questions)
    style = draw.weighted((("plain", 68), ("small", 14), ("open", 8), ("before", 7), ("thanks", 3)))
    if style == "small":
        return asked[0].lower() + asked[1:]
    if style == "open" and asked != "Whoami?":  # that would be the command
        return asked.rstrip("?.")
    if style == "before":
        before = draw.wording(BEFORE)
        is_small = before[-2] not in ".!?" and draw.often(0.5)
        return before + (asked[0].lower() + asked[1:] if is_small else asked)
    if style == "thanks":
        return f"{asked if asked[-1] in '.?!' else f'{asked}.'} Thanks."
    return asked
