"""Tools that there are not: how such tools are named and described, and how people ask for what they do.

N what it is about   V what it does   R its first argument   PREP in, for, of or at   {a} {b} {c} the arguments
"!" in front: an order, so that a polite word may stand before it
"""

from __future__ import annotations

from typing import NamedTuple


class Slot(NamedTuple):
    names: tuple[str, ...]
    """Of the parameter."""
    value: str
    """What its values are: a row of `VALUES` in `new_tools.py`."""
    types: tuple[str, ...] = ("string",)


class Family(NamedTuple):
    names: tuple[str, ...]
    descriptions: tuple[str, ...]
    slots: tuple[Slot, ...]
    requests: tuple[str, ...]


NUMBER = ("integer", "integer", "string")
FAMILIES: dict[str, Family] = {
    "weather": Family(
        (
            "get weather", "weather", "get current weather", "check weather", "get forecast", "current weather",
            "weather report", "today's forecast", "weather lookup", "fetch weather", "local weather", "weather info",
        ),
        (
            "Get the weather for a R", "Get the current weather in a given R.", "The weather PREP a R.",
            "Weather in a R", "Returns the current weather conditions for a R.",
            "Get today's weather forecast for the given R.", "Tells how warm it is and whether it rains in a R.",
            "Fetch temperature, rain and wind for a R.", "Current weather: temperature, wind, rain.",
            "Look up the weather by R.", "Weather forecast for a R",
        ),
        (
            Slot(("city", "location", "place", "town", "address", "where", "query"), "place"),
        ),
        (
            "What is the weather in {a}?", "What's the weather like in {a}?", "What is the weather like in {a} today?",
            "How is the weather in {a}?", "Tell me about the weather in {a}", "weather in {a}",
            "What's the weather in {a}?", "!get the weather for {a}", "Is it raining in {a}?", "How warm is it in {a}?",
            "!check the weather in {a}", "weather {a}", "How is the weather in {a} today?",
            "Do I need an umbrella in {a}?", "what's the temperature in {a} right now", "Will it rain in {a} today?",
            "!give me the forecast for {a}", "Is it cold in {a}?", "how hot does it get in {a} today?", "{a} weather",
            "{a} forecast please", "Is it sunny in {a} at the moment?", "!look up the weather in {a}",
            "Any snow in {a}?", "what are the current conditions in {a}?",
            "I am going to {a}, what will the weather be?", "Should I take a jacket to {a}?",
            "!show me the weather for {a}", "Could you tell me how the weather is in {a}?",
            "What's it like outside in {a}?", "I'm travelling to {a} tomorrow, will it be warm there?",
            "How windy is it in {a}?", "current weather {a}",
        ),
    ),
    "look up": Family(
        (
            "get N", "fetch N", "N", "lookup N", "N info", "check N", "get current N", "find N", "read N", "N lookup",
            "query N", "N finder", "show N", "retrieve N",
        ),
        (
            "Get the N PREP a R.", "Get the current N PREP a R.", "Returns the N PREP the given R.",
            "Look up the N PREP a R", "Find out the N PREP a R.", "N PREP a R.", "Retrieve the latest N PREP a R.",
            "Fetches the N for the given R.", "Gives the N of a R", "Query the N by R.",
            "Tool to look up the N PREP any R.", "Shows what the N PREP a R is.",
        ),
        (
            Slot(
                (
                    "city", "location", "place", "town", "region", "area", "name", "item", "station", "product", "id",
                    "country", "query", "target", "code", "subject",
                ), "place",
            ),
        ),
        (
            "What is the N PREP {a}?", "What's the N PREP {a}?", "How is the N PREP {a}?", "!get the N PREP {a}",
            "!check the N PREP {a}", "!tell me the N PREP {a}", "!show me the N PREP {a}", "N PREP {a}",
            "!find the N PREP {a}", "I need the N PREP {a}", "I want to know the N PREP {a}",
            "Do you know the N PREP {a}?", "What N does {a} have?", "Tell me about the N PREP {a}",
            "What will the N be PREP {a}?", "N PREP {a}?", "What is the N like PREP {a}?", "!look up the N PREP {a}",
            "!give me the N PREP {a}", "Could you tell me the N PREP {a}?", "Any idea what the N PREP {a} is?", "{a} N",
            "{a}: what is the N?", "current N PREP {a}", "!fetch the N PREP {a}", "I am looking for the N PREP {a}",
            "Has {a} got a N?", "what's {a}'s N?", "I'd like to see the N PREP {a}", "Can I have the N PREP {a}?",
            "Please find out the N PREP {a} for me", "what N is there PREP {a}", "How about the N PREP {a}?",
            "!let me know the N PREP {a}",
        ),
    ),
    "turn on": Family(
        (
            "turn on N", "switch on N", "N on", "enable N", "start N", "activate N", "N turn on", "power on N",
            "set N on", "smart home N on",
        ),
        (
            "Turn on the N in a R.", "Switches the N in a R on.", "Activate the N of a R.", "Turn the N on.",
            "Switch on the N in the given R.", "Turns on the N.", "Powers on the N in a R.", "Start the N in one R.",
            "Control of the N: turns it on in a R.", "Puts the N in a R on", "Enable the N for a R.",
        ),
        (
            Slot(("room", "place", "zone", "area", "location", "room_name", "where", "target", "space"), "room"),
        ),
        (
            "!turn on the N in the {a}", "!switch on the N in the {a}", "!turn the N in the {a} on",
            "N on in the {a}, please", "N on in the {a}", "I need the N on in the {a}", "I want the N in the {a} on",
            "!start the N in the {a}", "!switch the {a} N on", "!activate the N in the {a}", "!turn the {a} N on",
            "Can we have the N on in the {a}?", "!put the N in the {a} on", "The N in the {a} should be on",
            "Could you get the N going in the {a}?", "turn on {a} N", "!enable the N in the {a}",
            "Would you switch on the N in the {a}, please", "I'm in the {a}, turn on the N",
            "!power on the N in the {a}", "Let us have the N in the {a} on", "Why is the N in the {a} off? Turn it on",
            "!fire up the N in the {a}", "I can't do without the N in the {a}, switch it on",
            "Mind turning on the N in the {a}?",
        ),
    ),
    "turn off": Family(
        (
            "turn off N", "switch off N", "N off", "disable N", "stop N", "shut N", "N turn off", "power off N",
            "set N off", "smart home N off", "kill N",
        ),
        (
            "Turn off the N in a R.", "Switches the N in a R off.", "Stop the N of a R.", "Turn the N off.",
            "Switch off the N in the given R.", "Turns off the N.", "Powers off the N in a R.", "Stop the N in one R.",
            "Control of the N: turns it off in a R.", "Puts the N in a R out", "Disable the N for a R.",
        ),
        (
            Slot(("room", "place", "zone", "area", "location", "room_name", "where", "target", "space"), "room"),
        ),
        (
            "!turn off the N in the {a}", "!switch off the N in the {a}", "!turn the N in the {a} off",
            "N off in the {a}, please", "I want the N in the {a} off", "!stop the N in the {a}",
            "!switch the {a} N off", "N off in the {a}", "!turn the {a} N off", "!shut off the N in the {a}",
            "The N in the {a} should be off", "Nobody is in the {a}, so switch off the N",
            "Could you stop the N in the {a}?", "turn off {a} N", "!disable the N in the {a}",
            "Would you switch off the N in the {a}, please", "I'm leaving the {a}, turn off the N",
            "!power off the N in the {a}", "Why is the N in the {a} still on? Turn it off", "!kill the N in the {a}",
            "Mind turning off the N in the {a}?", "I left the N on in the {a}, turn it off",
            "No more N in the {a}, please", "We don't need the N in the {a} any longer", "!shut down the N in the {a}",
            "The N in the {a} can go off now",
        ),
    ),
    "set": Family(
        (
            "set N", "set N level", "change N", "adjust N", "update N", "N control", "put N", "regulate N", "N setter",
        ),
        (
            "Set the N in a R.", "Change the N of a R to a value.", "Adjust the N.",
            "Sets the N in the given R to a level.", "Changes the N to a new value.", "Sets how high the N in a R is.",
            "Control the N of a R.", "Put the N in a R at a value.", "Update the level of the N.",
        ),
        (
            Slot(("room", "place", "device", "zone", "name", "room_name", "where", "target", "space"), "room"),
            Slot(
                (
                    "value", "level", "degrees", "amount", "percent", "setting", "new_value", "number",
                ), "amount", NUMBER,
            ),
        ),
        (
            "!set the N in the {a} to {b}", "!change the N in the {a} to {b}", "Make the N in the {a} {b}",
            "!put the N in the {a} at {b}", "I want the N in the {a} at {b}", "N in the {a} to {b}, please",
            "!adjust the {a} N to {b}", "!set the {a} N to {b}", "!turn the N in the {a} to {b}", "set N {a} {b}",
            "The N in the {a} should be {b}", "Could we have the N in the {a} at {b}?",
            "!bring the N in the {a} to {b}", "!turn the N up to {b} in the {a}", "!lower the N in the {a} to {b}",
            "!raise the N in the {a} to {b}", "I'd like {b} for the N in the {a}", "In the {a}, set the N to {b}",
            "N at {b} in the {a}", "!update the N of the {a} to {b}", "What about {b} for the N in the {a}?",
            "The {a} needs its N at {b}", "!fix the N in the {a} at {b}", "I prefer the N in the {a} at {b}",
            "Change {a} N to {b}",
        ),
    ),
    "convert": Family(
        (
            "convert N", "convert", "N converter", "to unit", "unit converter", "convert units", "convert value",
            "unit conversion", "change unit", "convert amount",
        ),
        (
            "Convert a N to another R.", "Converts a value into another R.", "N conversion.",
            "Convert an amount to another unit.", "Converts units and currencies.",
            "How much an amount is in another unit.", "Unit converter: gives the value in the target unit.",
            "Turn a R into another unit.", "Says how many of a unit an amount makes.",
            "Convert between units of measure.",
        ),
        (
            Slot(("amount", "value", "number", "quantity", "input", "from_value", "n"), "amount", NUMBER),
            Slot(("unit", "target", "to", "currency", "to_unit", "target_unit", "into", "output_unit"), "unit"),
        ),
        (
            "!convert {a} to {b}", "!convert {a} into {b}", "I need {a} converted to {b}", "How much is {a} in {b}?",
            "What is {a} in {b}?", "{a} in {b}, please", "How many {b} are {a}?", "!turn {a} into {b}", "{a} to {b}",
            "{a} as {b}", "what's {a} in {b}", "How many {b} is {a}?", "How many {b} make {a}?", "!give me {a} in {b}",
            "!express {a} in {b}", "!change {a} to {b}", "I have {a}, what is that in {b}?",
            "Could you convert {a} to {b}?", "What does {a} come to in {b}?", "{a} equals how many {b}?",
            "!work out {a} in {b}", "conversion of {a} to {b}", "I would like to know {a} in {b}",
            "!calculate {a} in {b}", "in {b}, how much is {a}?", "How much would {a} be in {b}?",
            "!tell me what {a} is in {b}",
        ),
    ),
    "send": Family(
        (
            "send N", "N send", "post N", "write N", "deliver N", "N to", "message N", "new N", "send a N", "submit N",
        ),
        (
            "Send a N to someone.", "Sends a N to a person.", "Write a N to a R.", "Sends a N with some text to a R.",
            "Deliver a N to the given R.", "Write and send a N.", "Lets the user send a N to a contact.",
            "Send text as a N to somebody.", "Compose a N and send it to a R.",
        ),
        (
            Slot(
                (
                    "to", "recipient", "user", "person", "contact", "receiver", "to_user", "address", "target",
                    "to_name",
                ), "who",
            ),
            Slot(("body", "text", "message", "content", "msg", "note", "contents"), "message"),
        ),
        (
            "!send a N to {a} saying {b}", "!send {a} a N saying {b}", "N {a}: {b}", "!write a N to {a}: {b}",
            "!send a N to {a} with the text {b}", "!tell {a} by N: {b}", "!let {a} know by N that {b}", "N to {a}: {b}",
            'Send {a} the N "{b}"', "!send the N {b} to {a}", "!drop {a} a N: {b}",
            "Could you send {a} a N that says {b}", "!message {a} by N: {b}", "I want to send a N to {a}: {b}",
            "!write {a} a N: {b}", "N for {a}: {b}", "!shoot {a} a N saying {b}", "!send a N to {a}: {b}",
            "I need to tell {a} something by N: {b}", "!inform {a} by N that {b}", '"{b}" - send that as a N to {a}',
            "!reply to {a} by N: {b}", 'send N {a} "{b}"', "!get a N to {a} with this text: {b}",
            "new N to {a}, text: {b}", "Please N {a} and say {b}", "!post a N to {a} that reads {b}",
            "!compose a N to {a}: {b}",
        ),
    ),
    "create": Family(
        (
            "create N", "add N", "new N", "schedule N", "make N", "plan N", "N create", "insert N", "enter N",
            "set up N", "book N",
        ),
        (
            "Create a N.", "Add a N to the calendar.", "Schedule a N on a date.", "Plan a new N.",
            "Creates a new N with a R and a date.", "Adds a N on the given day.", "Put a N in the calendar.",
            "Schedules a N.", "Set up a N with a R for a date.", "Enter a new N.",
        ),
        (
            Slot(("title", "name", "subject", "label", "what", "summary", "description", "event", "text"), "thing"),
            Slot(("date", "day", "when", "time", "on", "start", "due", "start_date"), "date"),
        ),
        (
            "!create a N {a} on {b}", "!add a N called {a} on {b}", "Put {a} in my N for {b}",
            "!schedule a N {a} for {b}", "New N: {a}, {b}", "!make a N {a} for {b}", "I need a N {a} on {b}",
            "!plan {a} for {b}", "!add {a} to my N on {b}", "N {a} on {b}, please",
            "I have {a} on {b}, put it in the N", "!set up a N called {a} for {b}", "!enter a N {a} on {b}",
            "!book a N {a} on {b}", "Could you put a N {a} on {b}?", "add N {a} {b}", "On {b} there is a N {a}, add it",
            "!note a N on {b}: {a}", "!create {a} as a N for {b}", "There should be a N called {a} on {b}",
            "!make a new N for {b}, title {a}", "Can we have a N {a} on {b}?", "!schedule {a} as N on {b}",
            "Let's have a N on {b} called {a}", "!start a N named {a}, date {b}", "!arrange a N {a} for {b}",
            "for {b}: N {a}", "!put down a N for {b}: {a}", "I want a new N named {a} on {b}",
        ),
    ),
    "search": Family(
        (
            "search N", "N search", "find in N", "query N", "lookup in N", "search", "N lookup", "find N",
            "search in N", "N query",
        ),
        (
            "Search the N.", "Find something in the N.", "Search the N for a R.", "Full text search in the N.",
            "Searches the N for text.", "Look something up in the N.", "Finds entries of the N by R.",
            "Search tool for the N.", "Query the N with a R.", "Gives results from the N for a R.",
        ),
        (
            Slot(
                (
                    "query", "q", "term", "text", "keyword", "phrase", "search_query", "search", "what", "topic",
                ), "thing",
            ),
        ),
        (
            "!search the N for {a}", "!look up {a} in the N", "!look up {a} on the N", "!find {a} in the N",
            "!look for {a} in the N", "!search {a} in the N", "What does the N say about {a}?",
            "!search for {a} in the N", "N search: {a}", "Is there anything about {a} in the N?",
            "Can you find {a} in the N?", "search {a} N", "!check the N for {a}", "N for {a}, please",
            "Anything on {a} in the N?", "!see if the N has {a}", "!query the N for {a}",
            "I am looking for {a} in the N", "What can you find about {a} in the N?", "Does the N mention {a}?",
            "!go through the N and find {a}", "!do a N search for {a}", "Where in the N is {a}?",
            "I need something about {a} from the N", "!use the N to look up {a}", "Could you search the N for {a}?",
            "search N: {a}", "Is {a} in the N?", "!dig up {a} from the N",
        ),
    ),
    "calculate": Family(
        (
            "calculate N", "evaluate", "compute", "math", "solve", "calc", "eval expression", "calculator", "do math",
            "arithmetic", "calculate", "calculate expression", "math eval",
        ),
        (
            "Evaluate a math R.", "Compute the result of a R.", "Calculate a R", "Does arithmetic.",
            "Evaluates an arithmetic expression.", "Calculator for sums: plus, minus, times, divided.",
            "Calculates the result of a math expression.", "Works out how much a R is.",
            "Solve a calculation such as 2 + 2.", "A simple calculator", "Do a calculation and return the number.",
        ),
        (
            Slot(("expression", "formula", "input", "expr", "term", "math", "sum", "calculation", "equation"), "sum"),
        ),
        (
            "!calculate {a}", "What is {a}?", "How much is {a}?", "!compute {a}", "!evaluate {a}", "!work out {a}",
            "{a}", "What does {a} make?", "!solve {a}", "{a} = ?", "What's {a}?", "!do the math: {a}",
            "!find the result of {a}", "Can you calculate {a}?", "!give me the result of {a}", "{a}?", "{a} please",
            "!add it up: {a}", "How much does {a} come to?", "I need to know what {a} is", "result of {a}",
            "!tell me what {a} is", "How much is {a} exactly?", "So what would {a} be?", "calc {a}", "!figure out {a}",
            "quick sum: {a}", "Could you work out {a} for me?", "math: {a}", "I can't do {a} in my head",
        ),
    ),
    "translate": Family(
        (
            "translate", "translate N", "translate to", "N translator", "translator", "translate phrase",
            "translate sentence", "language translator", "text translation", "get translation",
        ),
        (
            "Translate text into a language.", "Translates a R.", "Translate a N into another language.",
            "Translate text to another language.", "Translates a phrase into the given language.",
            "Says how a R is said in another language.", "Language translation of words and sentences.",
            "Translation into a target language.", "Gives the translation of a R.", "Turn text into another language.",
        ),
        (
            Slot(("text", "phrase", "sentence", "input", "source", "word", "content", "q", "message"), "thing"),
            Slot(
                (
                    "language", "target", "to", "lang", "to_language", "target_language", "into", "target_lang",
                ), "language",
            ),
        ),
        (
            '!translate "{a}" into {b}', "!translate {a} to {b}", "How do you say {a} in {b}?", "What is {a} in {b}?",
            "!say {a} in {b}", "{a} in {b}?", "I need {a} translated into {b}", "What is the {b} word for {a}?",
            "!translate {a} into {b}", "!give me {a} in {b}", "what's {a} in {b}", "What do they call {a} in {b}?",
            'How would I say "{a}" in {b}?', '!put "{a}" into {b}', "In {b}, what is {a}?",
            "!translate this to {b}: {a}", "What does {a} become in {b}?", "I want to say {a} in {b}", "{b} for {a}?",
            '{b} translation of "{a}"', "how is {a} written in {b}", "What's the {b} for {a}?", '!turn "{a}" into {b}',
            "Could you translate {a} to {b}?", "translate to {b}: {a}", "I have to write {a} in {b}",
            "!tell me how to say {a} in {b}", 'Do you know the {b} for "{a}"?',
        ),
    ),
    "timer": Family(
        (
            "set timer", "start N", "N timer", "set N", "wake", "countdown", "create timer", "timer", "new N",
            "minute timer", "set countdown", "add N",
        ),
        (
            "Set a N for some minutes.", "Starts a N.", "N with a number of minutes.",
            "Set a N that rings after some minutes.", "Timer that counts down a number of minutes.",
            "Start a countdown of minutes.", "Rings after the given minutes.", "Creates a N, in minutes.",
            "A timer: wakes the user when the minutes are over.",
        ),
        (
            Slot(("minutes", "duration", "length", "time", "mins", "in_minutes", "n", "delay"), "minutes", NUMBER),
        ),
        (
            "!set a N for {a} minutes", "!start a N of {a} minutes", "{a} minutes N, please", "N for {a} minutes",
            "I need a N for {a} minutes", "!give me a {a} minute N", "!wake me in {a} minutes with the N", "N {a} min",
            "{a} minute N", "!ring the N in {a} minutes", "Let me know when {a} minutes are over",
            "!set a {a} minute N", "Can you start a {a} minutes N?", "!count down {a} minutes",
            "!time {a} minutes for me", "I want a N in {a} minutes", "My tea needs {a} minutes, set a N",
            "!start the N, {a} minutes", "N: {a} minutes", "!put a N on for {a} minutes",
            "Tell me when {a} minutes have passed", "In {a} minutes I need a N", "Set N for {a}",
            "The N should go off in {a} minutes", "{a} minutes from now, N please",
            "Could you set the N to {a} minutes?",
        ),
    ),
    "play": Family(
        (
            "play N", "start N", "put on N", "stream N", "play", "play media", "N player", "play track", "listen to N",
        ),
        (
            "Play a N.", "Plays the N with this R.", "Start a N by R.", "Play music, a film or another N.",
            "Plays something by its R.", "Starts playing the N.", "Media player: plays the N that is asked for.",
            "Put on a N.", "Listen to a N.", "Stream the N with the given R.",
        ),
        (
            Slot(("title", "name", "track", "what", "query", "song", "media", "item", "search"), "thing"),
        ),
        (
            "!play {a}", "!play the N {a}", "!put on {a}", "I want to hear {a}", "!start the N {a}",
            "I would like to hear the N {a}", "Some {a}, please", "!play me {a}", "Can you play {a}?", "!play some {a}",
            "!play the N called {a}", "I feel like hearing {a}", "Let's listen to {a}", "!stream {a}",
            "I'm in the mood for the N {a}", "Could you put the N {a} on?", "play {a} N", "!queue up {a}",
            "How about some {a}?", "!let me hear {a}", "!start playing {a}", "Time for {a}, play it", "N {a}, play",
            "I want to listen to {a}", "!put on the N {a} please", "Do you have {a}? Play it", "!turn on the N {a}",
        ),
    ),
    "order": Family(
        (
            "order N", "buy N", "N order", "purchase N", "order", "place order", "buy", "order item", "order product",
            "add to cart",
        ),
        (
            "Order some N.", "Order items.", "Buy a number of a R.", "Places an order for N.",
            "Order a quantity of an item.", "Buys products for the user.", "Places an order with quantity and item.",
            "Buy something in the shop.", "Shop: order how many of what.", "Purchases a number of items.",
            "Order N or other goods.",
        ),
        (
            Slot(("quantity", "count", "amount", "number", "qty", "how_many", "n", "pieces"), "few", NUMBER),
            Slot(("item", "product", "article", "what", "name", "product_name", "thing", "goods", "sku"), "thing"),
        ),
        (
            "!order {a} {b}", "I would like {a} {b}", "!buy {a} {b}", "Get me {a} {b}", "I need {a} {b}",
            "{a} {b}, please", "!order {a} of {b}", "We need {a} {b}", "Can I get {a} {b}?", "I'll have {a} {b}",
            "I want {a} {b}", "!get {a} of {b}", "!place an order for {a} {b}", "Could you order {a} {b}?",
            "order: {a} x {b}", "{a} x {b}", "!purchase {a} {b}", "Let's buy {a} {b}", "Give me {a} {b}",
            "I want to buy {a} {b}", "We are out of {b}, order {a}", "!put {a} {b} in my cart", "!send me {a} {b}",
            "Is it possible to order {a} {b}?", "We could use {a} {b}, please order them", "{a} of {b}, please",
            "May I have {a} {b}",
        ),
    ),
    "travel": Family(
        (
            "book N", "reserve N", "get N ticket", "find N", "N booking", "buy N ticket", "N from to", "search N",
            "book N trip", "N search",
        ),
        (
            "Book a N from one place to another.", "Reserve a N.", "N booking.", "Books a N between two places.",
            "Reserve a N from an origin to a destination.", "Get a N ticket from one city to another.",
            "Find a N from a R to another place.", "Search for a N between cities.", "Travel by N: from and to.",
            "Buy a ticket for a N.",
        ),
        (
            Slot(
                (
                    "from", "origin", "start", "departure", "from_city", "source", "departure_city", "from_place",
                ), "place",
            ),
            Slot(("to", "destination", "target", "arrival", "to_city", "end", "arrival_city", "to_place"), "place"),
        ),
        (
            "!book a N from {a} to {b}", "I need a N from {a} to {b}", "N from {a} to {b}",
            "!reserve a N from {a} to {b}", "!find me a N from {a} to {b}", "How do I get from {a} to {b} by N?",
            "I want to go from {a} to {b} by N", "!get me a N from {a} to {b}", "Is there a N from {a} to {b}?",
            "!find a N from {a} to {b}", "{a} to {b} by N", "{a} - {b}, N", "Which N goes from {a} to {b}?",
            "!look for a N going from {a} to {b}", "I have to be in {b}, book a N from {a}",
            "I'm in {a} and need a N to {b}", "Can I get a N from {a} to {b}?", "!buy a N ticket from {a} to {b}",
            "book N {a} {b}", "We want to travel from {a} to {b} by N", "!get me from {a} to {b} by N",
            "!take me to {b} from {a} with a N", "One N ticket from {a} to {b}, please", "to {b} from {a}, by N",
            "!search for a N leaving {a} for {b}", "Any N between {a} and {b}?", "I'd like to book a N from {a} to {b}",
        ),
    ),
    "reserve": Family(
        (
            "book N", "reserve N", "make N reservation", "reserve", "book table", "new N reservation", "N booking",
            "create reservation", "reserve table",
        ),
        (
            "Book a N for a number of people.", "Reserve a N.", "N reservation.",
            "Make a reservation of a N for guests on a date.", "Reserves a N at a place.",
            "Books a N for people and a date.", "Book at a R.", "Get a N for some people.", "Table or N reservations.",
            "Reserve at a R for a number of guests",
        ),
        (
            Slot(("name", "place", "where", "restaurant", "venue", "location", "at"), "place"),
            Slot(
                (
                    "people", "guests", "count", "seats", "persons", "party_size", "n", "number_of_people",
                ), "few", ("integer",),
            ),
            Slot(("date", "day", "time", "when", "on", "datetime", "reservation_date", "day_and_time"), "date"),
        ),
        (
            "!book a N at {a} for {b} people on {c}", "!reserve a N at {a} for {b} on {c}",
            "I need a N at {a} for {b} people on {c}", "N at {a}, {b} people, {c}", "A N for {b} at {a} on {c}, please",
            "Can you book a N at {a} for {b} on {c}?", "!get us a N at {a} for {b} people, {c}",
            "We are {b} people and want a N at {a} on {c}", "Is there a N at {a} for {b} on {c}?",
            "book N {a} {b} people {c}", "!make a reservation at {a} for {b} people on {c}",
            "On {c} we need a N for {b} at {a}", "I'd like to reserve a N for {b} at {a} on {c}", "N for {b}, {a}, {c}",
            "!reserve a N for {b} people at {a}, date: {c}", "Do they have a N for {b} at {a} on {c}?",
            "!book {a} for {b} people on {c}", "!reserve {a} for {c}, {b} guests",
            "We will be {b} guests at {a} on {c}, please book a N", "{c}, {b} people, N at {a}",
            "I want to go to {a} with {b} people on {c}, reserve a N", "!find us a N for {b} at {a} on {c}",
            "A N at {a}: {b} guests, {c}", "{b} people at {a} on {c}, please book",
            "Could we have a N at {a} on {c} for {b}?",
        ),
    ),
    "delete": Family(
        (
            "delete N", "remove N", "cancel N", "clear N", "close N", "N delete", "erase N", "drop N", "delete a N",
            "destroy N",
        ),
        (
            "Delete a N.", "Remove a N by its R.", "Cancel the N with this R.", "Deletes the N with the given R.",
            "Removes a N for good.", "Erase a N.", "Cancels a N by R.", "Get rid of a N.", "Close a N with its R",
        ),
        (
            Slot(("id", "name", "number", "key", "title", "identifier", "ref", "which", "target"), "label"),
        ),
        (
            "!delete the N {a}", "!remove the N {a}", "!cancel N {a}", "I no longer need the N {a}",
            "!get rid of the N {a}", "Delete {a} from my N list", "!close the N {a}", "!erase the N {a}",
            "!drop the N {a}", "The N {a} can go", "delete N {a}", "!delete the N called {a}", "!throw away the N {a}",
            "Could you remove N {a}?", "We don't need N {a} any more, delete it", "!take the N {a} off",
            "N {a} should be deleted", "remove {a} from the N list", "!clear the N {a}", "Can you get rid of N {a}?",
            "I want the N {a} gone", "!cancel my N {a}", "!wipe the N {a}", "Kill the N {a}",
            "No N {a} any more, please", "The N {a} is no longer needed", "I'd like to cancel the N {a}",
        ),
    ),
    "remind": Family(
        (
            "remind", "add reminder", "set reminder", "create N", "reminder", "create reminder", "new reminder",
            "remind me", "schedule reminder", "reminder add",
        ),
        (
            "Set a reminder.", "Remind the user of something at a time.", "Adds a N.",
            "Create a reminder with a R and a time.", "Reminds the user about something on a date.", "Adds a reminder.",
            "Sets a reminder so that nothing is forgotten.", "Schedule a reminder for later.",
            "Make a N so that the user does not forget.", "Remind me of a R",
        ),
        (
            Slot(("text", "what", "task", "title", "message", "about", "subject", "note"), "thing"),
            Slot(("time", "when", "date", "at", "due", "remind_at", "datetime", "on"), "date"),
        ),
        (
            "Remind me of {a} on {b}", "!remind me about {a} at {b}", "Do not let me forget {a} on {b}",
            "!set a reminder for {a} at {b}", "Reminder: {a}, {b}", "Can you remind me of {a} on {b}?",
            "!remind me: {a}, {b}", "I must not forget {a} on {b}", "!add a reminder for {b}: {a}", "reminder {a} {b}",
            "remind me {b} {a}", "On {b} remind me about {a}", "!make a reminder about {a} for {b}",
            "I need a reminder about {a} on {b}", "Could you give me a reminder for {a} at {b}?",
            "I always forget {a}, remind me on {b}", "!nudge me about {a} on {b}", "Don't forget: {a} on {b}",
            "{b}: remind me of {a}", "Will you remind me about {a} on {b}?", "!put a reminder on {b} for {a}",
            "!create a reminder called {a} for {b}", "Set reminder: {a} at {b}",
            "I have to think of {a} on {b}, please remind me", "!tell me on {b} not to forget {a}",
            "I would like to be reminded of {a} on {b}", "!schedule a reminder for {b} about {a}",
        ),
    ),
    "open": Family(
        (
            "open N", "launch N", "show N", "display N", "go to N", "N open", "view N", "start N", "load N",
            "bring up N",
        ),
        (
            "Open a N.", "Show the N with this R.", "Displays a N.", "Opens the N with the given R.", "Launches a N.",
            "Show a N on the screen.", "Brings up the N for the user.", "View a N by R.", "Start or open a N.",
        ),
        (
            Slot(("name", "id", "title", "page", "key", "target", "which", "app"), "thing"),
        ),
        (
            "!open the N {a}", "!show me the N {a}", "!launch {a}", "Where is the N {a}?", "I want to see the N {a}",
            "!bring up the N {a}", "!display {a}", "!open N {a}", "!open {a}", "open {a} N", "!let me see the N {a}",
            "!pull up the N {a}", "Can you open the N {a}?", "!go to the N {a}", "!view the N {a}",
            "I need the N {a} on my screen", "!load the N {a}", "!take me to the N {a}", "Could I see the N {a}?",
            "Open up the N called {a}", "N {a}, please", "!start the N {a}", "I'd like to look at the N {a}",
            "!display the N {a}", "Show N {a}", "May I look at the N {a}?", "!switch to the N {a}",
        ),
    ),
    "do": Family(
        (
            "N V", "V N", "V", "V N now", "N V tool", "V the N", "run V N", "perform V", "do V",
        ),
        (
            "V a N.", "V the N.", "Vs a R", "V something with a R.", "Vs the N with the given R.", "Vs a N.",
            "Lets the user V a N.", "V one N by its R.", "Tool to V the N.", "Used to V a R",
        ),
        (
            Slot(("name", "target", "id", "value", "item", "key", "object", "ref", "identifier", "what"), "label"),
        ),
        (
            "!V the N {a}", "!V {a}", "!V a N called {a}", "I need the N {a} Ved", "I want to V {a}",
            "Let us V the N {a}", "V N {a}", "V {a}, please", "Can the N {a} be Ved?", "Could you V the N {a}?",
            "!V N {a}", "The N {a} should be Ved", "I'd like to V the N {a}", "!go and V the N {a}",
            "There is a N {a} to V", "We have to V {a}", "Is it possible to V the N {a}?", "!V the N named {a}",
            "!V this N: {a}", "Has N {a} been Ved? If not, V it", "I want the N {a} to be Ved", "!V my N {a}",
            "Let's V {a}", "!get the N {a} Ved", "Time to V the N {a}", "Would you V {a} for me?",
        ),
    ),
    "do with": Family(
        (
            "V N", "N V", "V", "V N with", "N V by", "V the N", "run V N", "perform V",
        ),
        (
            "V a N with a R.", "V the N.", "V a number of N.", "Vs a N by an amount.", "Vs the N with the given R.",
            "V the N a number of times.", "Lets the user V a N by a number.", "Tool to V a N with a value.",
            "V one N by R and amount.",
        ),
        (
            Slot(("name", "target", "item", "key", "id", "object", "what"), "label"),
            Slot(("count", "amount", "size", "level", "steps", "number", "times", "value", "n"), "amount", NUMBER),
        ),
        (
            "!V the N {a} {b} times", "!V {a} with {b}", "!V the N {a} at {b}", "V {b} of {a}", "I need {a} Ved by {b}",
            "V N {a} {b}", "!V the N {a} by {b}", "!V {a} {b} times", "Could you V the N {a} by {b}?",
            "The N {a} should be Ved {b} times", "I want to V the N {a} with {b}", "!V N {a}, {b} times",
            "Can you V {a} by {b}?", "We need {a} Ved {b} times", "!V the N called {a} by {b}", "V {a}: {b}",
            "I'd like the N {a} Ved with {b}", "!V {b} of the N {a}", "Let us V {a} by {b}", "!V my N {a} with {b}",
            "by {b}, V the N {a}", "Please V the N {a} to {b}", "Is it possible to V {a} by {b}?", "With {b}, V {a}",
            "{b} times, V the N {a}", "!V {a} up to {b}", "Set {b} and V the N {a}",
        ),
    ),
    "stock price": Family(
        (
            "get stock price", "stock quote", "share price", "get stock", "stock lookup", "get quote", "ticker price",
            "fetch stock price", "stock",
        ),
        (
            "Get the current stock price of a R.", "Returns the share price of a company.", "Stock quote for a R.",
            "Fetches the latest price of a stock.", "What a share of a company costs now.",
            "Look up stock prices by R.", "Stock market price for the given R.", "Current stock quote",
        ),
        (
            Slot(("company", "symbol", "ticker", "stock", "name"), "place"),
        ),
        (
            "What is the stock price of {a}?", "What's {a} trading at?", "!get the stock price of {a}",
            "!check the {a} stock", "{a} stock price", "How much is a share of {a}?", "How is the {a} stock doing?",
            "stock {a}", "!look up the share price of {a}", "How are shares of {a} doing today?", "!quote {a} stock",
            "price of {a} shares", "I own {a} shares, what are they worth?", "!show me the {a} share price",
            "Is the {a} stock up or down?", "What does one {a} share cost?", "Any news on the {a} stock price?",
            "!tell me what {a} stock is at", "At what price is {a} stock right now?", "share price {a}",
            "Could you check shares of {a}?", "What's the stock of {a} worth?", "!find the current price of {a} stock",
            "I want to buy shares of {a}, what do they cost?", "latest {a} stock quote", "{a} shares?",
        ),
    ),
    "exchange rate": Family(
        (
            "get exchange rate", "exchange rate", "currency rate", "convert currency", "currency exchange",
            "forex rate", "fx rate", "get rate",
        ),
        (
            "Get the exchange rate between two currencies.", "Exchange rate from one currency to another.",
            "Returns how much one currency is worth in another.", "Currency rates: from and to.",
            "Look up the rate of a currency.", "Foreign exchange rate for a pair of currencies.",
            "Currency exchange rate", "Rate between a base and a target currency.",
        ),
        (
            Slot(("base", "from", "from_currency", "source", "base_currency"), "unit"),
            Slot(("target", "to", "to_currency", "quote", "target_currency"), "unit"),
        ),
        (
            "What is the exchange rate from {a} to {b}?", "exchange rate {a} {b}",
            "!get the exchange rate between {a} and {b}", "How is the rate of {a} to {b}?",
            "!check the {a} to {b} exchange rate", "What's the rate for {a} in {b}?",
            "How many {b} do I get for one of my {a}?", "!show the rate from {a} to {b}", "rate {a}/{b}",
            "I want to exchange {a} for {b}, what is the rate?", "!look up the currency rate of {a} against {b}",
            "If I change {a} into {b}, at what rate?", "Today's rate for {a} to {b}", "What are {a} worth in {b}?",
            "How do {a} stand against {b}?", "!tell me the rate of {a} in {b}", "currency rate from {a} to {b}",
            "Could you give me the rate between {a} and {b}?", "I need the exchange rate of {a} to {b}",
            "Are {a} strong against {b} right now?", "!find out how {a} trade against {b}", "what do {a} cost in {b}",
            "Is it a good day to swap {a} for {b}?", "exchange {a} into {b}: which rate?",
            "What do I get in {b} for my {a}?",
        ),
    ),
    "news": Family(
        (
            "get news", "news", "latest news", "search news", "headlines", "news search", "top headlines", "fetch news",
            "news about",
        ),
        (
            "Get the latest news about a R.", "News headlines on a R.", "Search news articles.",
            "Returns recent news for the given R.", "Fetches headlines about something.",
            "What the news says about a R.", "Find news articles by R.", "Current headlines",
        ),
        (
            Slot(("topic", "subject", "query", "about", "keyword", "q"), "topic"),
        ),
        (
            "What's the news about {a}?", "news about {a}", "!get me the latest news on {a}", "Any news on {a}?",
            "!show me headlines about {a}", "What is new in {a}?", "news {a}",
            "Is there anything in the news about {a}?", "!find news articles about {a}",
            "I want to read the news on {a}", "What happened with {a} today?", "latest {a} news",
            "!search the news for {a}", "headlines on {a}, please", "What are the headlines for {a}?",
            "!catch me up on {a}", "Did anything happen in {a} this week?", "What do the papers say about {a}?",
            "!bring me news on {a}", "recent articles about {a}", "Could you look for news about {a}?",
            "Tell me the news about {a}", "What's going on with {a}?", "I'd like some headlines about {a}",
            "today's news: {a}", "!fetch the top stories about {a}",
        ),
    ),
    "define": Family(
        (
            "define word", "get definition", "dictionary", "define", "word definition", "dictionary lookup",
            "lookup word", "word meaning", "thesaurus",
        ),
        (
            "Get the definition of a R.", "Look up what a word means in the dictionary.", "Dictionary: explains a R.",
            "Returns the meaning of the given R.", "Define a word.", "Definition of an English word.",
            "Meanings of a R", "Gives the dictionary entry for a R.",
        ),
        (
            Slot(("word", "term", "q", "query", "entry", "phrase"), "topic"),
        ),
        (
            "What does {a} mean?", "define {a}", "!define the word {a}", "What is the definition of {a}?",
            "What's the meaning of {a}?", "!look up {a} in the dictionary", "meaning of {a}",
            "!give me the definition of {a}", "How is {a} defined?", "definition: {a}", "I don't know the word {a}",
            'What does the word "{a}" mean?', "!explain the word {a}", "Do you know what {a} means?",
            "!tell me what {a} means", "The word {a}, what is it?", "!find the meaning of {a}", "dictionary {a}",
            "What does the dictionary say about {a}?", "Someone said {a}, what does that mean?",
            "Could you define {a}?", "what's {a} supposed to mean", "!look up the word {a}",
            "I need a definition of {a}", "I never heard the word {a}. Meaning?",
        ),
    ),
    "directions": Family(
        (
            "get directions", "directions", "route", "navigate", "find route", "plan route", "get route", "navigation",
            "route planner", "show the way",
        ),
        (
            "Get directions from one place to another.", "Find the route between two places.",
            "Navigation from a R to a destination.", "How to get from a place to another.", "Plan a route.",
            "Returns the way from the R to the destination.", "Directions for driving or walking.",
            "Shows the way to a place",
        ),
        (
            Slot(("origin", "from", "start", "source", "start_location"), "place"),
            Slot(("destination", "to", "end", "target", "end_location"), "place"),
        ),
        (
            "How do I get from {a} to {b}?", "directions from {a} to {b}", "!show me the way from {a} to {b}",
            "!give me directions from {a} to {b}", "What's the best route from {a} to {b}?", "route {a} to {b}",
            "!navigate from {a} to {b}", "!find a route from {a} to {b}", "Which way is it from {a} to {b}?",
            "I'm in {a}, how do I get to {b}?", "How can I go to {b} from {a}?", "!guide me from {a} to {b}",
            "{a} to {b} directions", "What is the way to {b} from {a}?", "!plan a route from {a} to {b}",
            "I have to drive from {a} to {b}", "Starting in {a}, which road leads to {b}?", "way from {a} to {b}",
            "Can you get me the route between {a} and {b}?", "I am lost in {a} and want to go to {b}",
            "!map the trip from {a} to {b}", "Could you navigate me to {b} from {a}?", "from {a} to {b}, which way?",
            "We walk from {a} to {b}, show the route", "I need directions to {b}, I start in {a}",
        ),
    ),
    "distance": Family(
        (
            "get distance", "distance", "distance between", "calculate distance", "measure distance", "how far",
            "distance matrix", "travel distance",
        ),
        (
            "Get the distance between two places.", "How far one place is from another.",
            "Calculates the distance from a R to a destination.", "Distance in kilometres between cities.",
            "Returns the distance between two locations.", "Measure how far it is from place to place.",
            "Distance calculator", "Tells how many miles lie between two places.",
        ),
        (
            Slot(("origin", "from", "start", "place1", "city_a"), "place"),
            Slot(("destination", "to", "end", "place2", "city_b"), "place"),
        ),
        (
            "How far is it from {a} to {b}?", "What is the distance between {a} and {b}?", "distance {a} {b}",
            "!get the distance from {a} to {b}", "How many kilometres is it from {a} to {b}?",
            "How far is {a} from {b}?", "!calculate the distance between {a} and {b}",
            "How many miles are between {a} and {b}?", "{a} to {b}, how far?", "Is it far from {a} to {b}?",
            "!tell me how far it is from {a} to {b}", "distance from {a} to {b}",
            "!measure the distance from {a} to {b}", "How long is the way from {a} to {b} in km?",
            "How far away is {b} if I am in {a}?", "Is {a} close to {b}?", "what's the distance from {a} to {b}",
            "I wonder how far {a} and {b} are apart", "km between {a} and {b}", "!find out the distance of {a} to {b}",
            "Do you know how far it is between {a} and {b}?", "{a} - {b} distance", "How far apart are {a} and {b}?",
            "I need the distance {a} to {b}", "How far would I travel from {a} to {b}?",
        ),
    ),
    "time in": Family(
        (
            "get time", "current time", "world clock", "time in city", "get local time", "timezone", "local time",
            "time zone lookup", "clock",
        ),
        (
            "Get the current time in a R.", "Local time for the given R.", "World clock: the time in any city.",
            "What time it is in a R.", "Returns the local time of a place.", "Time zone lookup by R.",
            "Current time by R", "Tells the time somewhere else.",
        ),
        (
            Slot(("city", "location", "timezone", "place", "zone"), "place"),
        ),
        (
            "What time is it in {a}?", "time in {a}", "!tell me the time in {a}", "What's the time in {a} now?",
            "current time {a}", "!get the local time in {a}", "Do you know what time it is in {a}?",
            "How late is it in {a}?", "what's the local time in {a}", "!check the clock in {a}", "time {a}",
            "Is it night in {a} now?", "What time do they have in {a}?",
            "Can I call someone in {a} now, how late is it there?", "!show me the current time in {a}",
            "Which time is it right now in {a}?", "What is the hour in {a}?", "local time of {a}, please",
            "I have a call with {a}, what time is it there?", "!find out what time it is in {a}", "{a} time?",
            "Could you tell me the time in {a}?", "What does the clock say in {a}?",
            "Are people in {a} awake? What time is it?", "In {a}, what time is it?",
        ),
    ),
    "flight status": Family(
        (
            "flight status", "get flight status", "check flight", "track flight", "flight info", "get flight",
            "flight tracker", "flight lookup",
        ),
        (
            "Get the status of a flight by its R.", "Says whether a flight is on time or late.", "Track a flight.",
            "Flight status for the given R.", "Looks up a flight: gate, delay, arrival.",
            "Check if a flight is delayed.", "Flight information by R", "Returns when a flight departs and lands.",
        ),
        (
            Slot(("flight_number", "flight", "flight_no", "number", "code"), "code"),
        ),
        (
            "What is the status of flight {a}?", "Is flight {a} on time?", "flight {a}", "!check flight {a}",
            "Is {a} delayed?", "!track flight {a}", "When does flight {a} land?", "flight status {a}",
            "When will {a} arrive?", "!get the status of my flight {a}", "Has flight {a} left yet?",
            "!look up flight {a}", "Is my flight {a} late?", "Where is flight {a} now?", "At which gate is flight {a}?",
            "My flight is {a}, is it on time?", "!tell me if flight {a} is delayed", "How late is flight {a}?",
            "status for flight number {a}", "Did flight {a} land?",
            "I am picking someone up from flight {a}, when does it arrive?", "!show flight {a}",
            "Any delay on flight {a}?", "{a}: is that flight on time?",
            "Could you check whether flight {a} is cancelled?",
        ),
    ),
    "track parcel": Family(
        (
            "track parcel", "track package", "track shipment", "parcel status", "tracking", "get shipment status",
            "package tracker", "delivery status",
        ),
        (
            "Track a parcel by its R.", "Get the delivery status of a package.", "Where a shipment is now.",
            "Package tracking with a R.", "Returns the status of a delivery.", "Follow a parcel on its way.",
            "Shipment tracking", "Finds out when a package arrives.",
        ),
        (
            Slot(("tracking_number", "tracking_id", "number", "shipment_id", "code", "parcel_id"), "code"),
        ),
        (
            "Where is my parcel {a}?", "!track parcel {a}", "!track my package {a}", "track {a}",
            "What is the status of shipment {a}?", "Has my package {a} arrived?", "When does the parcel {a} come?",
            "package {a}", "!check the delivery {a}", "!find out where package {a} is", "tracking {a}",
            "My tracking number is {a}, where is the package?", "Did they deliver {a} yet?", "!follow the shipment {a}",
            "How far is my delivery {a}?", "status of parcel {a}", "Is my order with tracking number {a} on its way?",
            "!look up the tracking number {a}", "Where's {a}? It should have been delivered",
            "I am waiting for package {a}", "When will shipment {a} be here?", "Could you track the delivery {a}?",
            "{a} is my parcel, where is it?", "!show me the tracking for {a}", "Any update on parcel {a}?",
        ),
    ),
    "list events": Family(
        (
            "list events", "get calendar", "calendar events", "get events", "get schedule", "list appointments",
            "agenda", "check calendar", "list meetings",
        ),
        (
            "List the calendar events of a R.", "Gets all appointments on a day.",
            "Shows the calendar for the given R.", "What is in the calendar on a day.",
            "Returns the meetings of a day.", "Read the agenda for a R.", "Calendar: events by R",
            "Check the schedule of a day.",
        ),
        (
            Slot(("date", "day", "on", "when", "start_date"), "date"),
        ),
        (
            "What's on my calendar on {a}?", "calendar {a}", "!list my events for {a}", "What do I have on {a}?",
            "!show my calendar for {a}", "Am I free on {a}?", "Do I have any meetings on {a}?",
            "!check my calendar for {a}", "my agenda for {a}", "What is planned for {a}?",
            "Which appointments are there on {a}?", "schedule for {a}", "!tell me what is scheduled for {a}",
            "Is there anything on {a}?", "How busy am I on {a}?", "!give me my appointments on {a}", "events on {a}",
            "Have I got something planned for {a}?", "What does {a} look like for me?", "{a}: what is in my calendar?",
            "Any appointments on {a}?", "Could I take a day off on {a}, or is there a meeting?",
            "!read me my agenda for {a}", "What meetings do I have for {a}?", "I want to see my schedule for {a}",
        ),
    ),
    "contact": Family(
        (
            "get contact", "find contact", "search contacts", "contact lookup", "lookup contact", "get phone number",
            "address book", "contacts",
        ),
        (
            "Find a contact by R.", "Get the phone number and email of a person.", "Looks up somebody in the contacts.",
            "Search the address book.", "Returns the contact details of a R.", "Contact lookup by R",
            "Gives the number or address of a person.", "Contacts: find by R.",
        ),
        (
            Slot(("name", "contact", "person", "who", "query"), "who"),
        ),
        (
            "What is the phone number of {a}?", "!find the contact {a}", "!look up {a} in my contacts", "contact {a}",
            "Do I have the number of {a}?", "How can I reach {a}?", "!get me the contact details of {a}",
            "!search my contacts for {a}", "Is {a} in my contacts?", "phone number of {a}",
            "What's the address of {a}?", "!show me the contact of {a}", "Have we got contact details for {a}?",
            "!give me the number of {a}", "I need the phone number of {a}", "Can you find {a} in the address book?",
            "!pull up the contact info for {a}", "contact details {a}", "Under which number do I reach {a}?",
            "Which email has {a}?", "!check whether {a} is in the address book", "I lost the number of {a}",
            "Where do I find {a} in my contacts?", "Who is {a} in my phone book?", "number for {a}?",
        ),
    ),
    "call": Family(
        (
            "make call", "phone call", "call contact", "start call", "dial", "call", "place call", "call person",
            "telephone",
        ),
        (
            "Call a person by phone.", "Makes a phone call to a R.", "Dial a contact.",
            "Starts a call with the given R.", "Place a telephone call.", "Phone somebody.", "Call a R",
            "Rings a contact.",
        ),
        (
            Slot(("contact", "name", "to", "who", "person", "recipient"), "who"),
        ),
        (
            "!call {a}", "!phone {a}", "!give {a} a call", "!ring {a}", "I want to talk to {a}", "!dial {a}",
            "call {a} now", "I have to call {a}", "!make a call to {a}", "!get {a} on the phone",
            "Can I speak with {a}?", "!start a call with {a}", "Let me talk to {a}", "phone call to {a}",
            "!put me through to {a}", "I'd like to ring {a}", "!place a call to {a}", "!connect me with {a}",
            "I need to phone {a}", "Time to call {a}", "Would you call {a} for me?", "!try to reach {a} by phone",
            "Let's give {a} a ring", "!call up {a}", "I should speak to {a}, call please",
        ),
    ),
    "create ticket": Family(
        (
            "create ticket", "open ticket", "create issue", "new issue", "file bug", "new ticket", "report issue",
            "add issue", "raise ticket",
        ),
        (
            "Create a ticket with a R and a priority.", "Opens a new issue.", "File a bug report.",
            "Adds an issue to the tracker with its priority.", "Report a problem as a ticket.",
            "Creates a support ticket.", "New issue with R and priority", "Raise a ticket in the tracker.",
        ),
        (
            Slot(("title", "summary", "subject", "name", "description"), "thing"),
            Slot(("priority", "severity", "urgency", "level", "prio"), "priority"),
        ),
        (
            "!create a ticket {a} with {b} priority", "!open an issue {a}, priority {b}",
            "!file a bug {a} with priority {b}", "new ticket: {a}, {b}", "!create a {b} priority ticket for {a}",
            "There is a problem with {a}, open a ticket with {b} priority", "!report the issue {a} as {b}",
            "ticket {a}, priority {b}", "!open a {b} ticket about {a}", "We need an issue for {a}, priority {b}",
            "!raise a ticket {a} of priority {b}", "!add an issue called {a}, {b} priority",
            "I'd like to open a ticket for {a}, it is {b}", "!make a ticket titled {a} with priority {b}",
            "bug: {a}, prio {b}", "Could you file a ticket on {a}, {b} priority?",
            "!log a ticket {a} with {b} severity", "I want to report {a}, priority {b}",
            "!put {a} in the tracker with {b} priority", "There should be a ticket {a} with priority {b}",
            'issue "{a}", {b}', "!start a ticket on {a} and mark it {b}", "!submit a bug report {a}, priority {b}",
            "Open ticket: {a}. Priority: {b}", "We have trouble with {a}, make it a {b} issue",
        ),
    ),
    "close ticket": Family(
        (
            "close ticket", "close issue", "resolve ticket", "resolve issue", "finish ticket", "mark resolved",
            "ticket close", "complete issue",
        ),
        (
            "Close a ticket by its R.", "Marks an issue as resolved.", "Resolve the ticket with the given R.",
            "Closes an issue of the tracker.", "Set a ticket to done.", "Finish a support ticket.",
            "Close tickets by R", "Ends the issue that has this R.",
        ),
        (
            Slot(("ticket_id", "id", "issue", "ticket", "number", "key"), "code"),
        ),
        (
            "!close ticket {a}", "close {a}", "!resolve ticket {a}", "!mark {a} as resolved", "Ticket {a} is done",
            "!close the issue {a}", "Issue {a} is fixed, close it", "We are finished with ticket {a}",
            "!set ticket {a} to closed", "!mark the ticket {a} as done", "Can issue {a} be closed?",
            "ticket {a} can be closed", "I solved {a}, close the ticket", "!shut ticket {a}",
            "Is {a} still open? Close it", "!close out {a}", "We fixed {a}, so close the issue", "{a} is resolved",
            "!complete ticket {a}", "Nothing left to do on ticket {a}", "Could you close issue number {a}?",
            "resolve {a}", "The ticket {a} should be closed", "I want ticket {a} closed",
            "No more work on {a}, close the ticket",
        ),
    ),
    "list orders": Family(
        (
            "list orders", "get orders", "customer orders", "order history", "find orders", "show orders",
            "get customer orders", "orders by customer",
        ),
        (
            "List the orders of a R.", "Gets all orders that a customer has made.", "Order history of a customer.",
            "Returns the orders for the given R.", "Shows what a customer has bought.", "Find orders by R.",
            "Orders of one customer", "Look up past orders.",
        ),
        (
            Slot(("customer", "customer_name", "user", "client", "buyer", "account"), "who"),
        ),
        (
            "What has {a} ordered?", "!list the orders of {a}", "!show me all orders by {a}", "orders of {a}",
            "!get the order history of {a}", "Which orders does {a} have?", "What did {a} buy?",
            "!find the orders for {a}", "Are there any orders from {a}?", "order history {a}",
            "How many orders has {a} made?", "!pull up the orders of {a}", "I want to see what {a} bought",
            "past orders of {a}", "Did {a} order anything?", "!give me a list of the orders by {a}",
            "!look up the orders of customer {a}", "I need all orders from {a}", "Has {a} got open orders?",
            "Which things did {a} buy from us?", "Show orders for {a}", "!check what {a} has ordered",
            "customer {a}: all orders", "Could you get me the orders that {a} placed?",
            "everything {a} ordered, please",
        ),
    ),
    "refund": Family(
        (
            "refund order", "refund", "issue refund", "refund payment", "process refund", "give refund", "return order",
            "refund customer",
        ),
        (
            "Refund an order by its R.", "Gives the money for an order back.", "Issue a refund.",
            "Processes the refund of an order.", "Pay back what a customer paid.",
            "Money back for the order with the given R.", "Refunds by R", "Send the payment of an order back.",
        ),
        (
            Slot(("order_id", "order", "id", "order_number", "reference"), "code"),
        ),
        (
            "!refund order {a}", "refund {a}", "!give the money back for order {a}", "!issue a refund for {a}",
            "The customer wants a refund for {a}", "Can I get my money back for order {a}?", "!pay back order {a}",
            "I want a refund for {a}", "!process the refund of order {a}", "refund for order {a}",
            "I returned order {a}, please refund it", "Order {a} has to be refunded", "!refund the payment of {a}",
            "!send the money for {a} back", "My order {a} was broken, I want my money back", "money back for {a}",
            "Could you refund order number {a}?", "They never got {a}, so refund it", "!start a refund for order {a}",
            "!do a refund on {a}", "We owe a refund for {a}", "I'd like order {a} refunded",
            "!return the money for {a}", "{a} should be refunded", "Is a refund of {a} possible? Then do it",
        ),
    ),
    "get by id": Family(
        (
            "get N", "get N by id", "fetch N", "N details", "read N", "find N by id", "retrieve N", "load N", "N get",
        ),
        (
            "Get a N by its R.", "Returns the N with the given R.", "Fetches one N.", "Reads the details of a N by id.",
            "Retrieve a single N by R.", "Look up a N by its number.", "N details", "Load the data of a N.",
        ),
        (
            Slot(("id", "number", "identifier", "key", "ref"), "idnumber", NUMBER),
        ),
        (
            "!get N {a}", "!show me N {a}", "N {a}", "!fetch the N with id {a}", "Who or what is N {a}?",
            "!look up N number {a}", "What do we know about N {a}?", "N with the id {a}",
            "!give me the details of N {a}", "!load N {a}", "I need N {a}", "!pull up N {a}", "Can you find N {a}?",
            "details of N {a}", "!read N {a}", "What is in N {a}?", "!get the data of N {a}",
            "The id is {a}, show the N", "!retrieve the N {a}", "N number {a}, please", "I want to see N {a}",
            "Which N has the id {a}?", "!find the N with number {a}", "!display N {a}", "Tell me about N {a}",
            "Could I have the details for N {a}?",
        ),
    ),
    "update field": Family(
        (
            "update N", "edit N", "modify N", "set N field", "patch N", "change N", "update N field", "N update",
            "rename N",
        ),
        (
            "Update a field of a N.", "Changes one field of the N to a new value.", "Edit the N: field and value.",
            "Sets a R of a N.", "Modify a field of the N record.", "Patch a N with a new value.", "Change a R in the N",
            "Update the N record.",
        ),
        (
            Slot(("field", "property", "column", "attribute", "key"), "label"),
            Slot(("value", "new_value", "to", "content", "set_to"), "label"),
        ),
        (
            "!set the {a} of the N to {b}", "!update the N: {a} is now {b}", "!change the {a} of the N to {b}",
            "N {a}: {b}", "!update {a} to {b} in the N", "The {a} of the N should be {b}",
            "!edit the N so that {a} is {b}", "set N {a} = {b}", "!put {b} into the field {a} of the N",
            "In the N, change {a} to {b}", "!modify the N, {a} to {b}", "The N has a new {a}: {b}",
            "field {a} of the N to {b}", "!make {b} the {a} of the N", "Could you change {a} in the N to {b}?",
            "The {a} of the N is wrong, it is {b}", "!write {b} in the {a} field of the N",
            "I want {a} of the N set to {b}", "!replace the {a} of the N by {b}", "!save {b} as {a} of the N",
            "N update: {a} -> {b}", "For the N, {a} has changed to {b}", "!patch the N with {a} = {b}",
            "I need the {a} of the N changed to {b}", "Please update the {a} field to {b} for the N",
        ),
    ),
    "sql": Family(
        (
            "run sql", "query database", "execute sql", "sql query", "run query", "db query", "execute query", "sql",
            "count rows",
        ),
        (
            "Count the rows of a database table.", "Runs a SQL query that counts a R.",
            "Query the database: how many rows.", "Executes a select count on a R.",
            "How many records there are in a table.", "Database tool: number of rows in a R.",
            "Counts entries of a database R", "Table size by SQL.",
        ),
        (
            Slot(("table", "table_name", "relation", "dataset", "collection"), "topic"),
        ),
        (
            "How many rows are in the table {a}?", "!count the rows of {a}", "How many {a} are in the database?",
            "select count(*) from {a}", "!query the database for the number of {a}", "!run a count on the table {a}",
            "number of rows in {a}", "How big is the table {a}?", "!count {a} in the database", "row count {a}",
            "How many records does {a} have?", "!tell me how many {a} we have in the database",
            "Are there rows in the table {a}?", "!get the row count of {a}", "How many entries has the table {a}?",
            "I need the number of records in {a}", "!use SQL to count {a}", "!check how many rows {a} has",
            "table {a}: how many rows?", "Is the table {a} empty?", "What's the count of {a} in the database?",
            "Could you count the records in {a}?", "database: number of {a}", "How long is the table {a}?",
            "I want to know how many {a} the database holds",
        ),
    ),
    "git commit": Family(
        (
            "git commit", "commit", "commit changes", "create commit", "make commit", "vcs commit", "save changes",
            "repo commit",
        ),
        (
            "Commit the changes with a R.", "Git commit with a message.", "Creates a commit in the repository.",
            "Records changes to the repository.", "Save the work as a commit.", "Makes a git commit.",
            "Commits staged files with a R", "Commit everything with the given R.",
        ),
        (
            Slot(("message", "msg", "commit_message", "text", "description", "m"), "message"),
        ),
        (
            "!commit with the message {a}", '!commit this as "{a}"', 'git commit -m "{a}"', "commit: {a}",
            "!make a commit saying {a}", "!commit the changes with the message {a}", "!commit my work: {a}",
            '!create a commit "{a}"', "I want to commit this, message: {a}", "Commit everything. Message: {a}",
            '!save the changes in git as "{a}"', "!git commit with {a}", "commit message: {a}",
            'The changes are ready, commit them as "{a}"', "!commit all changes, {a}", "Let's commit: {a}",
            '!add a commit with the text "{a}"', 'Can you commit this with the message "{a}"?', "new commit {a}",
            "!write a commit that says {a}", 'I am done, commit with "{a}"', "!record this as a commit: {a}",
            "Please make the commit message {a}", "Time to commit, use the message {a}",
            "Could you do a git commit, message {a}",
        ),
    ),
    "create branch": Family(
        (
            "create branch", "git branch", "new branch", "make branch", "checkout branch", "branch create",
            "add branch", "start branch",
        ),
        (
            "Create a git branch from a base.", "Makes a new branch in the repository.", "Starts a branch with a R.",
            "New branch off another branch.", "Git: create a branch with the given R.",
            "Adds a branch that starts at a base branch.", "Branch off", "Create the branch R from a base branch",
        ),
        (
            Slot(("name", "branch", "branch_name", "new_branch", "title"), "label"),
            Slot(("base", "from", "source", "parent", "base_branch"), "environment"),
        ),
        (
            "!create a branch {a} from {b}", "!make a branch called {a} off {b}", "new branch {a} from {b}",
            "!branch off {b} as {a}", "git branch {a} {b}", "!start a branch {a} on {b}",
            "I need a branch {a} based on {b}", "!create the branch {a} based on {b}",
            "!add a new branch {a}, base {b}", "Can you make me a branch {a} from {b}?",
            "From {b}, create a branch {a}", "branch {a}, base {b}", "We need a new branch {a} that starts at {b}",
            "!open a branch named {a} from {b}", "!cut a branch {a} from {b}", "I want to work on a branch {a} off {b}",
            "!fork {a} from the branch {b}", "git checkout -b {a} {b}", "!set up a branch {a} from {b}",
            "Let's have a branch {a} starting from {b}", "!create a git branch {a} out of {b}",
            "Take {b} and make a branch {a} of it", "Could you branch {a} from {b}?",
            "!give me a fresh branch {a} from {b}", "There should be a branch {a} from {b}",
        ),
    ),
    "deploy": Family(
        (
            "deploy", "deploy service", "release service", "deploy app", "start deployment", "rollout", "ship",
            "deploy to environment", "publish service",
        ),
        (
            "Deploy a service to an environment.", "Releases a R to staging or production.", "Starts a deployment.",
            "Rolls out a service.", "Deploy the given R.", "Ships a service to an environment.",
            "Deployment of a R to test, staging or production", "Bring a service live.",
        ),
        (
            Slot(("service", "app", "name", "application", "project", "component"), "service"),
            Slot(("environment", "env", "target", "stage", "to"), "environment"),
        ),
        (
            "!deploy {a} to {b}", "deploy {a} {b}", "!release {a} to {b}", "!roll out {a} on {b}", "!ship {a} to {b}",
            "Can you deploy {a} to {b}?", "I want {a} on {b}", "!push {a} to {b}", "!deploy the service {a} on {b}",
            "Let's get {a} onto {b}", "!bring {a} to {b}", "Is {a} ready for {b}? Then deploy it",
            "!start a deployment of {a} to {b}", "On {b}, deploy {a}", "deployment of {a} to {b}, please",
            "!put {a} on {b}", "We need {a} deployed to {b}", "!run the {b} deployment of {a}",
            "!get the newest {a} out to {b}", "Time to release {a} on {b}", "!update {a} on {b} by a deployment",
            "I'd like to deploy {a} to {b}", "!publish {a} to {b}", "Could we have {a} rolled out to {b}?",
            "The new {a} should go to {b}",
        ),
    ),
    "restart": Family(
        (
            "restart server", "restart service", "reboot", "restart", "reboot server", "bounce service",
            "service restart", "restart container",
        ),
        (
            "Restart a service.", "Reboots a server by its R.", "Stops and starts a R again.", "Service restart.",
            "Restarts the server with the given R.", "Reboot a machine or service.", "Start a R anew",
            "Restart something that hangs.",
        ),
        (
            Slot(("service", "server", "name", "host", "machine", "container"), "service"),
        ),
        (
            "!restart {a}", "restart {a} now", "!reboot {a}", "!restart the server {a}",
            "The server {a} hangs, restart it", "Can you reboot {a}?", "!restart the service {a}", "!start {a} again",
            "!stop and start {a}", "Service {a} needs a restart", "reboot {a}", "I think {a} is stuck, restart it",
            "!give {a} a restart", "!bounce {a}", "Please do a restart of {a}", "!reboot the machine {a}",
            "We have to restart {a}", "Turn {a} off and on again", "!relaunch {a}", "Could we restart the {a} server?",
            "!do a reboot of {a}", "Is {a} frozen? Restart it then", "!bring {a} back up with a restart",
            "I'd like {a} to be restarted", "the {a} service should be restarted",
        ),
    ),
    "scale": Family(
        (
            "scale service", "scale", "set replicas", "scale deployment", "resize cluster", "autoscale",
            "change replicas", "scale app",
        ),
        (
            "Scale a service to a number of instances.", "Sets how many replicas a R has.",
            "Changes the number of instances.", "Scale a deployment up or down.", "Set the replicas of a R.",
            "Number of copies of a service that run.", "Scale the given R", "Scales a service.",
        ),
        (
            Slot(("service", "deployment", "name", "app", "component"), "service"),
            Slot(("replicas", "count", "instances", "n", "size"), "few", NUMBER),
        ),
        (
            "!scale {a} to {b}", "scale {a} {b}", "!scale {a} up to {b} replicas", "!run {b} instances of {a}",
            "We need {b} replicas of {a}", "!set the replicas of {a} to {b}", "!scale down {a} to {b}",
            "Can we have {b} instances of {a}?", "!scale the service {a} to {b} instances",
            "I want {b} copies of {a} running", "{b} replicas for {a}", "!give {a} {b} instances",
            "!bring {a} to {b} replicas", "There should be {b} instances of {a}", "!change {a} to {b} replicas",
            "!let {a} run on {b} instances", "Too much load on {a}, scale to {b}", "replicas of {a}: {b}",
            "!make it {b} replicas for {a}", "Could you scale {a} to {b} instances?", "!put {a} at {b} replicas",
            "Scale out {a}, {b} instances", "{b} instances of {a}, please", "I'd like to scale {a} to {b}",
            "How about {b} replicas for {a}? Scale it",
        ),
    ),
    "logs": Family(
        (
            "get logs", "logs", "read logs", "fetch logs", "tail logs", "show logs", "service logs", "view logs",
            "log reader",
        ),
        (
            "Get the logs of a service.", "Returns the last lines of the log of a R.", "Reads logs.",
            "Tail the log of a service.", "Fetch log lines for the given R.", "What a service has logged.",
            "Show the logs by R", "The last log lines of a service.",
        ),
        (
            Slot(("service", "name", "app", "source", "container", "pod"), "service"),
            Slot(("lines", "n", "limit", "count", "tail"), "few", NUMBER),
        ),
        (
            "!show me the last {b} lines of the {a} logs", "!get {b} log lines of {a}", "logs {a} {b}",
            "!tail {b} lines of {a}", "What are the last {b} log lines of {a}?", "!get the logs of {a}, {b} lines",
            "!fetch the {a} logs, last {b} lines", "I need the last {b} lines from the log of {a}",
            "{b} lines of logs for {a}", "!read the logs of {a}, {b} lines", "!give me {b} lines of the {a} log",
            "Can I see the last {b} logs of {a}?", "What did {a} log? The last {b} lines",
            "last {b} log lines from {a}", "!pull {b} lines of logs from {a}",
            "!print the last {b} lines of the log of {a}", "Why does {a} fail? Show {b} lines of its logs",
            "Let me see {b} lines of logs from {a}", "tail -n {b} on {a} logs",
            "!look into the logs of {a}, the last {b} lines", "Could you get me {b} lines of the {a} logs?",
            "!check the last {b} lines in the log of {a}", "From the log of {a}, the last {b} lines",
            "I want {b} log lines for {a}", "Show logs of {a}, limit {b}",
        ),
    ),
    "health check": Family(
        (
            "health check", "check health", "ping", "is up", "check status", "service status", "ping host",
            "status check", "uptime check",
        ),
        (
            "Check whether a service is up.", "Health check of a R.", "Pings a host and says if it answers.",
            "Returns whether a R is healthy or down.", "Status of a server.", "Tells if a service is running.",
            "Health of the given R", "Is a service reachable?",
        ),
        (
            Slot(("host", "service", "server", "target", "name", "hostname"), "service"),
        ),
        (
            "Is {a} up?", "!check the health of {a}", "!ping {a}", "Is {a} running?", "ping {a}",
            "Is the server {a} down?", "!do a health check on {a}", "How is {a} doing, is it healthy?", "status of {a}",
            "!check if {a} is up", "Does {a} answer?", "!see whether {a} is alive", "health {a}", "Is {a} online?",
            "Can you check that {a} works?", "!tell me if {a} is down", "I can't reach {a}, is it up?",
            "health check for {a}", "Is everything fine with {a}?", "Did {a} crash?", "!test if {a} is reachable",
            "Is service {a} healthy?", "What's the status of the server {a}?", "!find out if {a} is still running",
            "Has {a} gone down?",
        ),
    ),
    "sensor": Family(
        (
            "read sensor", "get sensor", "sensor value", "get reading", "sensor data", "measure N", "N sensor",
            "get N reading",
        ),
        (
            "Read the N sensor of a R.", "Returns the value that a sensor measures.", "Sensor reading for a R.",
            "Get the N that is measured in a R.", "Measures the N in the given R.", "Current value of a sensor.",
            "Reads the N sensor", "What the N sensor in a R shows.",
        ),
        (
            Slot(("room", "location", "place", "zone", "area", "sensor_location"), "room"),
        ),
        (
            "What does the N sensor in the {a} say?", "!read the N sensor in the {a}", "N sensor {a}",
            "What's the N in the {a}?", "!get the N reading from the {a}", "How is the N in the {a}?",
            "!measure the N in the {a}", "What is the N level in the {a}?", "sensor reading: N, {a}",
            "!check the N sensor of the {a}", "What does the sensor in the {a} show for N?", "N in the {a}?",
            "!show the N in the {a}", "I want to know the N in the {a}", "current N in the {a}",
            "Is the N in the {a} all right?", "!give me the N value for the {a}", "What N do we have in the {a}?",
            "!look at the N sensor in the {a}", "How much N is in the {a}?", "The N in the {a}, please",
            "Could you read the N in the {a}?", "!tell me the N in the {a}", "What value has the N sensor in the {a}?",
            "How high is the N in the {a}?",
        ),
    ),
    "lock": Family(
        (
            "lock door", "lock", "lock N", "secure door", "door lock", "close lock", "smart lock", "lock up",
        ),
        (
            "Lock the door of a R.", "Locks a door.", "Secure the door in the given R.", "Smart lock: locks the door.",
            "Closes the lock of a R.", "Lock up a R.", "Door lock for a R", "Locks the R so that nobody gets in.",
        ),
        (
            Slot(("door", "room", "name", "which", "location"), "room"),
        ),
        (
            "!lock the {a}", "!lock the {a} door", "lock {a}", "!lock the door of the {a}",
            "Is the {a} locked? Lock it", "!lock up the {a}", "!secure the {a} door", "I forgot to lock the {a}",
            "The {a} should be locked", "Did I lock the {a}? Please do", "!make sure the {a} is locked",
            "door of the {a}: lock", "Can you lock the {a}?", "Nobody should get into the {a}, lock it",
            "!keep the {a} locked", "I want the {a} door locked", "!bolt the {a} door", "We are leaving, lock the {a}",
            "Lock to the {a}, please", "!put the lock on the {a}", "Would you lock the door to the {a}",
            "!lock the door to the {a}", "The {a} is still open, lock the door", "The {a} door needs to be locked",
            "It's night, lock the {a}",
        ),
    ),
    "unlock": Family(
        (
            "unlock door", "unlock", "unlock N", "open door", "door unlock", "open lock", "release lock",
            "smart lock open",
        ),
        (
            "Unlock the door of a R.", "Unlocks a door.", "Opens the lock of the given R.",
            "Smart lock: unlocks the door.", "Let somebody in by unlocking.", "Open a locked door.",
            "Door unlock for a R", "Unlocks the R so that people get in.",
        ),
        (
            Slot(("door", "room", "name", "which", "location"), "room"),
        ),
        (
            "!unlock the {a}", "!unlock the {a} door", "unlock {a}", "!unlock the door of the {a}",
            "!open the lock of the {a}", "Is the {a} locked? Unlock it", "I can't get into the {a}",
            "The {a} should be unlocked", "!let me into the {a}", "!let them into the {a}", "Can you unlock the {a}?",
            "door of the {a}: unlock", "Somebody is waiting at the {a}, unlock it", "!make sure the {a} is unlocked",
            "I want the {a} door unlocked", "Why is the {a} locked? Unlock it", "!open up the {a} door",
            "We are home, unlock the {a}", "Unlock for the {a}, please", "!take the lock off the {a}",
            "Would you unlock the door to the {a}", "!unlock the door to the {a}",
            "I forgot my key to the {a}, unlock it", "The {a} door needs to be unlocked", "Please let me in at the {a}",
        ),
    ),
    "thermostat": Family(
        (
            "set temperature", "set thermostat", "thermostat", "heat room", "adjust temperature", "change temperature",
            "climate control", "set heating",
        ),
        (
            "Set the temperature in a R.", "Sets the thermostat of a R to some degrees.", "Heating control.",
            "Change how warm a R is.", "Thermostat: degrees for a R.", "Adjusts the heating of the given R.",
            "Room temperature control", "Make a R warmer or colder.",
        ),
        (
            Slot(("room", "zone", "location", "area", "place"), "room"),
            Slot(("temperature", "degrees", "value", "target_temperature", "celsius"), "few", NUMBER),
        ),
        (
            "!set the temperature in the {a} to {b}", "!set the {a} to {b} degrees", "!heat the {a} to {b} degrees",
            "thermostat {a} {b}", "I want it {b} degrees in the {a}", "!turn the heating in the {a} to {b}",
            "!make the {a} {b} degrees", "It is too cold in the {a}, {b} degrees please",
            "!set the thermostat in the {a} to {b}", "Can we have {b} degrees in the {a}?", "{b} degrees in the {a}",
            "!warm the {a} up to {b}", "!cool the {a} down to {b}", "The {a} should be at {b} degrees",
            "!put the {a} thermostat at {b}", "temperature in the {a}: {b}",
            "!change the temperature of the {a} to {b} degrees", "I'd like the {a} at {b} degrees",
            "It's too hot in the {a}, make it {b}", "!adjust the {a} heating to {b} degrees",
            "In the {a}, {b} degrees would be nice", "!bring the {a} to {b} degrees", "Could you heat the {a} to {b}?",
            "heating {a} {b} degrees", "Let it be {b} degrees in the {a}",
        ),
    ),
    "dim": Family(
        (
            "dim light", "set brightness", "dim", "dim lights", "light level", "brightness", "set light level",
            "dimmer", "set light brightness",
        ),
        (
            "Dim the light in a R to a percentage.", "Sets the brightness of a lamp.", "Light level of a R in percent.",
            "Dims the lights.", "Change how bright the light in the given R is.", "Dimmer for lights.",
            "Brightness control by R", "Makes the light in a R brighter or darker.",
        ),
        (
            Slot(("room", "light", "lamp", "location", "zone"), "room"),
            Slot(("brightness", "percent", "level", "value", "percentage"), "percent", NUMBER),
        ),
        (
            "!dim the light in the {a} to {b} percent", "!dim the {a} to {b}%",
            "!set the brightness in the {a} to {b} percent", "light in the {a} to {b}%",
            "!make the light in the {a} {b} percent", "dim {a} {b}", "I want the {a} light at {b} percent",
            "!turn the lights in the {a} down to {b}%", "!turn the lights in the {a} up to {b}%",
            "It's too bright in the {a}, {b} percent", "Can you dim the {a} light to {b}?", "brightness {a}: {b}%",
            "!put the {a} lights at {b} percent", "{b}% light in the {a}, please",
            "!lower the light in the {a} to {b} percent", "It is too dark in the {a}, {b} percent light",
            "The light in the {a} should be at {b}%", "!set the {a} lights to {b}%",
            "!bring the light in the {a} to {b} percent", "In the {a}, dim to {b} percent",
            "Only {b} percent light in the {a}", "!change the brightness of the {a} to {b}",
            "I'd like {b}% brightness in the {a}", "Could we have the lights in the {a} at {b}%?",
            "!adjust the light in the {a} to {b} percent",
        ),
    ),
    "post": Family(
        (
            "post message", "post to channel", "slack post", "channel message", "send to channel", "post",
            "publish message", "chat post", "slack message",
        ),
        (
            "Post a message to a channel.", "Writes a text in a chat channel.", "Sends a message to the given R.",
            "Publish a message for a team.", "Slack: post into a R.", "Chat message to a channel.", "Post text in a R",
            "Puts a message into a channel.",
        ),
        (
            Slot(("channel", "to", "room", "target", "channel_name"), "channel"),
            Slot(("text", "message", "content", "body", "msg"), "message"),
        ),
        (
            "!post {b} to {a}", "!post in {a}: {b}", "!write in {a} that {b}", "!send {b} to the channel {a}",
            "post {a} {b}", "!tell {a}: {b}", "!put this in {a}: {b}", "!let {a} know that {b}", 'In {a}, post "{b}"',
            'Can you post "{b}" in {a}?', "message to {a}: {b}", "!announce in {a}: {b}", '!say "{b}" in {a}',
            "I want to post in {a}: {b}", "!share with {a}: {b}", "The people in {a} should know: {b}",
            "!drop a message in {a}: {b}", "new post in {a}: {b}", '!publish "{b}" in {a}', '!write "{b}" to {a}',
            "Could you tell the channel {a} that {b}", "!send a message to {a} saying {b}", "to {a}: {b}",
            "!message the channel {a}: {b}", "Post this on {a}: {b}",
        ),
    ),
    "tweet": Family(
        (
            "tweet", "post tweet", "publish post", "social post", "create post", "send tweet", "share post",
            "publish status",
        ),
        (
            "Post a tweet.", "Publishes a text on social media.", "Tweets the given R.",
            "Share a post with all followers.", "Creates a social media post.", "Send a tweet with a R.",
            "Post to social media", "Publishes a status.",
        ),
        (
            Slot(("text", "status", "content", "message", "post", "body"), "message"),
        ),
        (
            "!tweet {a}", '!tweet "{a}"', "!post a tweet: {a}", "tweet: {a}", "!tweet this: {a}", "I want to tweet {a}",
            "!publish a tweet saying {a}", "!send out a tweet: {a}", 'Can you tweet "{a}"?',
            "!share this with my followers: {a}", "new tweet: {a}", '!put "{a}" on social media',
            "Let's tweet that {a}", "!write a tweet that says {a}", "My followers should read: {a}",
            '!post "{a}" on my profile', "I'd like to post a tweet: {a}", "!make a tweet out of this: {a}",
            "!post this on social media: {a}", "!tell my followers {a}", 'Could you post the tweet "{a}"?',
            "social media post: {a}", '!publish "{a}" as a tweet', "Time for a tweet: {a}", '!share the post "{a}"',
        ),
    ),
    "upload": Family(
        (
            "upload file", "upload", "put file", "upload to bucket", "store file", "s3 upload", "put object",
            "file upload", "copy to bucket",
        ),
        (
            "Upload a file to a bucket.", "Uploads the R to storage.", "Stores a file in the cloud.",
            "Puts a local file into a bucket.", "Send a file to cloud storage.", "File upload.",
            "Upload the given R to a folder in the cloud", "Copies a file to a bucket.",
        ),
        (
            Slot(("path", "file", "filename", "source", "local_path"), "path"),
            Slot(("bucket", "to", "target", "destination", "folder"), "topic"),
        ),
        (
            "!upload {a} to {b}", "!upload the file {a} to the bucket {b}", "upload {a} {b}", "!put {a} into {b}",
            "!store {a} in the bucket {b}", "Can you upload {a} to {b}?", "!send {a} up to {b}",
            "I want {a} in the bucket {b}", "!copy {a} to the bucket {b}", "The file {a} has to go to {b}",
            "upload of {a} to {b}", "!save {a} in the cloud under {b}", "!push the file {a} to {b}",
            "Bucket {b} needs the file {a}", "!place {a} in {b}", "I'd like to upload {a} into {b}",
            "!move the file {a} up to the bucket {b}", "Please get {a} into {b}", "Could you put the file {a} in {b}?",
            "!add {a} to the bucket {b}", "To the bucket {b}, upload {a}", "Let's upload {a} to {b}",
            "!transfer {a} to {b}", "file {a} to bucket {b}", "We need {a} uploaded to {b}",
        ),
    ),
    "download": Family(
        (
            "download", "download file", "fetch file", "save url", "get file", "wget", "download url", "file download",
            "pull file",
        ),
        (
            "Download a file from a R.", "Saves what is at a R.", "Fetches a file from the web.",
            "Downloads the given R to a path.", "Get a file from the internet.", "File download by R.",
            "Download and save as a file", "Loads a file down from the web.",
        ),
        (
            Slot(("url", "link", "from", "source", "address"), "url"),
            Slot(("path", "save_as", "to", "target", "filename"), "path"),
        ),
        (
            "!download {a} to {b}", "!download {a} and save it as {b}", "download {a} {b}", "!save {a} as {b}",
            "!fetch {a} into {b}", "Can you download {a} as {b}?", "!get the file at {a} and put it in {b}",
            "I want {a} downloaded to {b}", "!store {a} under {b}", "download of {a} to {b}", "!load {a} down to {b}",
            "Please pull {a} into {b}", "wget {a} -O {b}", "I need the file {a} as {b}",
            "!grab {a} and write it to {b}", "!download the link {a} to {b}",
            "Could you save the file from {a} to {b}?", "Let's download {a} to {b}", "!copy {a} from the web to {b}",
            "From {a}, download to {b}", "!keep a copy of {a} in {b}", "The file at {a} should be saved as {b}",
            "!download this: {a}, file name {b}", "Get {a}, save to {b}", "I'd like to download {a} and call it {b}",
        ),
    ),
    "resize image": Family(
        (
            "resize image", "scale image", "image resize", "resize picture", "change image size", "resize photo",
            "shrink image", "image scaler",
        ),
        (
            "Resize an image to a width.", "Changes the size of a picture.", "Scales the image with the given R.",
            "Makes a photo smaller or larger.", "Image resize by R and width.",
            "Sets how many pixels wide an image is.", "Resize pictures", "Scale a photo to a width in pixels.",
        ),
        (
            Slot(("path", "image", "file", "picture", "image_path"), "path"),
            Slot(("width", "size", "pixels", "w", "new_width"), "amount", NUMBER),
        ),
        (
            "!resize {a} to {b} pixels", "!resize the image {a} to {b}", "resize {a} {b}", "!make {a} {b} pixels wide",
            "!scale the picture {a} to {b} pixels", "Can you resize {a} to a width of {b}?", "I need {a} at {b} pixels",
            "!change the size of {a} to {b}", "!shrink {a} to {b} pixels", "image {a} to {b} px",
            "The picture {a} should be {b} pixels wide", "!scale {a} to {b} px", "I want the photo {a} in width {b}",
            "!bring the image {a} to {b} pixels", "Could you make the image {a} {b} wide?",
            "!set the width of {a} to {b}", "resize image {a}, width {b}", "!give me {a} with {b} pixels",
            "!convert the size of {a} to {b} pixels", "The photo {a} has the wrong size, make it {b} pixels",
            "!reduce {a} to {b} px", "Is {a} too large? Resize it to {b}", "!fit {a} to a width of {b}",
            "Picture {a}: {b} pixels, please", "I'd like to resize {a} to {b} px",
        ),
    ),
    "summarize url": Family(
        (
            "summarize url", "summarize", "summarize page", "page summary", "url summary", "summarize article", "tldr",
            "summarize link", "summary",
        ),
        (
            "Summarize a web page.", "Gives a summary of the page at a R.", "Reads an article and sums it up.",
            "Summary of a R.", "A short version of what is on a page.", "Summarizes the article at the given R.",
            "Web page summary", "What a page says, in short.",
        ),
        (
            Slot(("url", "link", "page", "address", "article_url"), "url"),
        ),
        (
            "!summarize {a}", "!sum up {a}", "What does {a} say, in short?", "summary of {a}",
            "!give me a summary of {a}", "tldr {a}", "What is {a} about?", "!summarize the page {a}",
            "!summarise the article at {a}", "Can you sum up the page {a}?", "I don't want to read {a}, summarize it",
            "!tell me what is on {a} in short", "short version of {a}", "!make a summary of the article {a}",
            "What are the main points of {a}?", "!read {a} and sum it up", "I need a summary of {a}",
            "!boil {a} down for me", "The gist of {a}, please", "Could you summarize this link: {a}",
            "What's the article {a} about?", "!give me the main points of {a}", "!condense the page {a}",
            "In a few words, what does the page {a} say?", "summarize: {a}",
        ),
    ),
    "extract text": Family(
        (
            "extract text", "ocr", "read text", "image to text", "text from image", "pdf to text", "extract content",
            "document text", "parse document",
        ),
        (
            "Extract the text from a document.", "Reads text in an image or PDF.", "OCR: text of the given R.",
            "Gets all text out of a R.", "Text recognition in a file.", "Turn a scan into text.",
            "Text extraction by R", "Converts a document to plain text.",
        ),
        (
            Slot(("path", "file", "document", "image", "file_path", "source"), "path"),
        ),
        (
            "!extract the text from {a}", "!get the text out of {a}", "What text is in the image {a}?", "ocr {a}",
            "!read the text in the scan {a}", "text of {a}", "!run OCR on {a}", "Can you extract the text of {a}?",
            "!pull the text from the document {a}", "I need the text in {a}", "!turn {a} into text",
            "text from {a}, please", "!convert the document {a} to plain text", "What does the scan {a} say?",
            "!recognise the text in {a}", "I want the text from the picture {a}", "Which words are on the image {a}?",
            "!take the text from {a}", "extract text: {a}", "!give me the plain text of {a}",
            "Could you get me the text in the file {a}?", "All the text in {a}",
            "I can't copy text from {a}, extract it", "!scan {a} for text", "Please copy the text out of {a}",
            "Is there any text in {a}?",
        ),
    ),
    "shorten": Family(
        (
            "shorten url", "shorten link", "url shortener", "short link", "create short url", "shorten", "tiny url",
            "make short link",
        ),
        (
            "Shorten a link.", "Makes a short URL for a R.", "URL shortener.", "Creates a short link to the given R.",
            "Turns a long R into a short one.", "Short links.", "Give a shorter address for a R", "Link shortener.",
        ),
        (
            Slot(("url", "link", "long_url", "address", "target"), "url"),
        ),
        (
            "!shorten {a}", "!make a short link for {a}", "short link for {a}", "!shorten the link {a}",
            "Can you shorten {a}?", "shorten: {a}", "!give me a short URL for {a}", "I need {a} shorter",
            "!create a short link to {a}", "The link {a} is too long", "!turn {a} into a short link", "short url {a}",
            "Is there a short link for {a}?", "!make {a} shorter", "I want a short link to {a}",
            "!shorten this url: {a}", "!get me a tiny link for {a}", "Could I have {a} as a short link?",
            "This is too long: {a}. Shorten it", "!cut down the link {a}", "A shorter address for {a}, please",
            "!abbreviate the link {a}", "Please give {a} a short address", "link shortener: {a}",
            "I'd like to have {a} shortened",
        ),
    ),
    "random number": Family(
        (
            "random number", "get random number", "random", "random int", "generate random number", "pick number",
            "rng", "randint", "number picker",
        ),
        (
            "Get a random number between two numbers.", "Draws a random number.",
            "Returns a random integer from a R to a maximum.", "Random number generator.",
            "Picks any number in a range.", "Chooses a number by chance.", "Random integer in a range",
            "Gives a number at random.",
        ),
        (
            Slot(("min", "from", "low", "minimum", "start"), "few", NUMBER),
            Slot(("max", "to", "high", "maximum", "end"), "amount", NUMBER),
        ),
        (
            "!give me a random number between {a} and {b}", "random number {a} {b}",
            "!pick a number between {a} and {b}", "!pick a number from {a} to {b}",
            "A random number from {a} to {b}, please", "!choose a number between {a} and {b}",
            "I need a random number between {a} and {b}", "!draw a number from {a} to {b}", "random {a}-{b}",
            "Can you think of a number between {a} and {b}?", "!generate a random number from {a} to {b}",
            "Any number between {a} and {b}", "!give me any number from {a} to {b}",
            "Tell me a random number, at least {a} and at most {b}", "!roll a number between {a} and {b}",
            "number between {a} and {b}?", "I want a random number, {a} to {b}",
            "!select a random integer between {a} and {b}", "Which number between {a} and {b}? You choose",
            "Say a number from {a} to {b}", "!make up a number between {a} and {b}", "random int from {a} to {b}",
            "Between {a} and {b}, pick a number", "Could I get a random number from {a} to {b}?",
            "!draw lots: a number between {a} and {b}",
        ),
    ),
    "roll dice": Family(
        (
            "roll dice", "dice", "roll", "throw dice", "roll die", "dice roller", "roll a dice", "dice roll",
        ),
        (
            "Roll dice.", "Throws a number of dice.", "Rolls as many dice as wanted.", "Dice roller for games.",
            "Roll a R of dice with some sides.", "Returns the result of a dice roll.", "Throw of dice",
            "Dice with a number of sides.",
        ),
        (
            Slot(("count", "dice", "n", "number", "how_many"), "few", NUMBER),
            Slot(("sides", "faces", "type", "size", "max"), "few", NUMBER),
        ),
        (
            "!roll {a} dice with {b} sides", "!throw {a} dice with {b} sides", "roll {a}d{b}",
            "!roll {a} {b}-sided dice", "{a} dice with {b} sides", "!roll {a}d{b}",
            "I need {a} dice with {b} sides each", "Can you roll {a} dice of {b} sides?", "!throw {a} {b}-sided dice",
            "dice: {a}d{b}", "!give me {a} dice rolls, {b} sides", "Let's roll {a} dice, {b} sides", "{a}d{b}",
            "!roll the dice, {a} of them with {b} sides", "I want to throw {a} dice with {b} faces",
            "!roll {a} dice, {b} faces", "What do {a} dice with {b} sides show?", "!toss {a} dice with {b} sides",
            "Throw {a}d{b}, please", "My turn: {a} dice with {b} sides", "!cast {a} dice that have {b} sides",
            "dice roll {a} times {b} sides", "Could you throw {a}d{b} for me?", "A roll of {a} dice with {b} sides",
            "We play with {a} dice of {b} sides, roll them",
        ),
    ),
    "password": Family(
        (
            "generate password", "create password", "password generator", "new password", "random password",
            "make password", "password", "gen password",
        ),
        (
            "Generate a password with a R.", "Creates a random password.", "Password generator: how long it is.",
            "A new password with some characters.", "Makes a safe password.", "Random password of the given R.",
            "Passwords by R", "Returns a strong password.",
        ),
        (
            Slot(("length", "size", "characters", "n", "chars"), "few", NUMBER),
        ),
        (
            "!generate a password with {a} characters", "password {a}", "!make a password of {a} characters",
            "!create a password of length {a}", "I need a password with {a} characters", "new password, {a} characters",
            "!give me a random password of {a} letters", "Can you make up a password with {a} characters?",
            "A {a} character password, please", "!generate a {a} character password",
            "!create a safe password, {a} characters long", "I want a new password, length {a}",
            "password of length {a}", "!invent a password with {a} signs", "A strong password of {a} characters",
            "!suggest a password that is {a} long", "Which password could I take? {a} characters",
            "!come up with a password of {a} characters", "Could I get a password with {a} letters?",
            "!produce a {a} letter password", "random password {a} long", "It must be a password with {a} characters",
            "Please give me a {a} character password", "!set me up with a password of {a} signs",
            "My password should have {a} characters, make one",
        ),
    ),
    "qr code": Family(
        (
            "create qr code", "qr code", "generate qr", "make qr code", "qr", "qr generator", "qrcode", "encode qr",
        ),
        (
            "Create a QR code for a R.", "Generates a QR code.", "QR code that leads to the given link.",
            "Makes a code to scan with the phone.", "QR image of a R.", "Turns a link into a QR code.",
            "QR code generator", "Encodes a R as QR.",
        ),
        (
            Slot(("url", "link", "data", "content", "target"), "url"),
        ),
        (
            "!make a QR code for {a}", "QR code {a}", "!create a QR code of {a}", "!generate a QR code for {a}",
            "I need a QR code for {a}", "Can you turn {a} into a QR code?", "qr {a}", "!give me a QR code with {a}",
            "QR code for {a}, please", "!encode {a} as a QR code", "I want {a} as a QR code",
            "!draw a QR code that opens {a}", "People should scan a code and get to {a}", "!build a QR code out of {a}",
            "A QR code to {a}", "!put {a} in a QR code", "Could I have a QR code of the link {a}?", "qr code: {a}",
            "!get me a QR for {a}", "Is it possible to have {a} as QR?", "!convert {a} to a QR code",
            "I'd like to scan {a}, make a QR code", "The link {a} as a QR code", "!produce a QR code linking to {a}",
            "New QR code, link {a}",
        ),
    ),
    "rate": Family(
        (
            "rate N", "review N", "give rating", "add rating", "N rating", "score N", "submit rating", "rate",
            "leave review",
        ),
        (
            "Rate a N with stars.", "Gives a N a rating.", "Adds a rating for the N.", "Submit stars for a R.",
            "Review a N: how many stars.", "Saves how good a N was.", "N rating by R", "Score the N with the given R.",
        ),
        (
            Slot(("title", "name", "item", "what"), "thing"),
            Slot(("stars", "rating", "score", "points", "value"), "few", NUMBER),
        ),
        (
            "!rate the N {a} {b} stars", "!give {a} {b} stars", "rate {a} {b}", "!give the N {a} a rating of {b}",
            "The N {a} gets {b} points from me", "!rate {a} with {b}", "I would give {a} {b} stars",
            "{b} stars for {a}", "!add a rating of {b} for {a}", "!score the N {a} with {b}",
            "I liked the N {a}, {b} stars", "rating for {a}: {b}", "Can you rate {a} with {b} stars?",
            "!put down {b} stars for the N {a}", "The N {a} is worth {b} stars", "!review the N {a}: {b} stars",
            "My rating of {a} is {b}", "!leave {b} stars for {a}", "I'd say {b} points for the N {a}",
            "N {a}: {b} stars", "!submit {b} stars for {a}", "I want to rate {a} {b}",
            "!save my rating {b} for the N {a}", "{b} out of ten for {a}", "Could you give the N {a} {b} points?",
        ),
    ),
    "restaurant": Family(
        (
            "find restaurant", "recommend restaurant", "restaurant search", "search restaurants", "restaurants",
            "places to eat", "find food", "nearby restaurants",
        ),
        (
            "Recommend a restaurant in a R.", "Finds restaurants in a city.", "Where to eat in a R.",
            "Restaurant search by R and food.", "Places to eat with some kind of food.",
            "Suggests a restaurant in the given R.", "Restaurants by R", "Search for somewhere to eat.",
        ),
        (
            Slot(("city", "location", "place", "where", "near"), "place"),
            Slot(("cuisine", "food", "dish", "type", "kind"), "topic"),
        ),
        (
            "!find a restaurant in {a} with {b}", "Where can I eat {b} in {a}?", "restaurant {a} {b}",
            "!recommend a restaurant for {b} in {a}", "Is there a good {b} place in {a}?", "I want to eat {b} in {a}",
            "!look for a {b} restaurant in {a}", "Which restaurant in {a} has {b}?",
            "!show me places to eat {b} in {a}", "Any restaurants in {a} that serve {b}?",
            "!suggest a {b} restaurant in {a}", "I'm hungry for {b} and in {a}", "{a} restaurants with {b}",
            "We are in {a} and would like {b}", "!get me a list of {b} restaurants in {a}",
            "Who makes the best {b} in {a}?", "Where do people go for {b} in {a}?",
            "!search for restaurants with {b} in {a}", "a restaurant for {b} in {a}, please",
            "Do you know somewhere to eat {b} in {a}?", "Could you recommend somewhere in {a} for {b}?",
            "I'd like to have {b} for dinner in {a}", "Is {b} served anywhere in {a}?",
            "Dinner in {a} with {b}, any idea?", "Which place in {a} is good for {b}?",
        ),
    ),
    "recipe": Family(
        (
            "get recipe", "find recipe", "recipe", "search recipes", "recipe search", "how to cook", "cooking recipe",
            "recipe finder", "recipes",
        ),
        (
            "Get a recipe for a R.", "Finds out how to cook a R.", "Recipe search.",
            "Returns the recipe of the given R.", "Cooking instructions for a dish.", "Search recipes by R.",
            "Recipes for a R", "How a dish is made.",
        ),
        (
            Slot(("dish", "food", "name", "query", "meal"), "topic"),
        ),
        (
            "How do I cook {a}?", "recipe for {a}", "!find a recipe for {a}", "!give me a recipe for {a}",
            "How is {a} made?", "What do I need to make {a}?", "recipe {a}", "!show me how to cook {a}",
            "I want to cook {a}", "How do you make {a}?", "!get me the recipe of {a}", "Do you have a recipe for {a}?",
            "!look up a recipe with {a}", "I'd like to make {a} tonight", "!tell me how to prepare {a}",
            "Which ingredients go into {a}?", "Can you find me a {a} recipe?", "!search recipes for {a}",
            "a good recipe for {a}, please", "How long does {a} have to cook?", "Cooking {a}: how?",
            "What's in {a}, and how do I cook it?", "!teach me to cook {a}", "I never cooked {a}, how does it go?",
            "Could I get the recipe for {a}?",
        ),
    ),
    "calories": Family(
        (
            "get calories", "calories", "nutrition", "food calories", "nutrition info", "calorie lookup",
            "count calories", "get nutrition",
        ),
        (
            "Get the calories of a R.", "How many calories a food has.", "Nutrition facts for a R.",
            "Returns the calories in the given R.", "Calorie lookup.", "Nutrition of a food: calories, fat, sugar.",
            "Calories by R", "Says how much energy is in a food.",
        ),
        (
            Slot(("food", "item", "name", "dish", "query"), "topic"),
        ),
        (
            "How many calories are in {a}?", "calories {a}", "How many calories does {a} have?",
            "!get the calories of {a}", "What are the calories of {a}?", "Is {a} healthy?",
            "!look up the calories in {a}", "calories in {a}", "!tell me the calories of {a}", "How fattening is {a}?",
            "nutrition of {a}", "What's the calorie count for {a}?", "!check how many calories {a} has",
            "I ate {a}, how many calories is that?", "Are there many calories in {a}?",
            "!show the nutrition facts for {a}", "How much sugar is in {a}?", "!find out the calories for {a}",
            "nutrition facts {a}", "I am on a diet, can I eat {a}?", "Does {a} have a lot of calories?",
            "!count the calories of {a}", "Could you tell me how many calories {a} has?", "kcal of {a}?",
            "I want to know the calories of {a}",
        ),
    ),
    "log workout": Family(
        (
            "log workout", "add workout", "record exercise", "track workout", "log exercise", "save workout",
            "log activity", "add training", "workout",
        ),
        (
            "Log a workout with its minutes.", "Records an exercise.", "Adds training to the diary.",
            "Saves how long somebody has exercised.", "Workout log: R and minutes.", "Track exercise.",
            "Log the given R", "Writes down a sport and how long it was done.",
        ),
        (
            Slot(("exercise", "activity", "type", "sport", "workout"), "topic"),
            Slot(("minutes", "duration", "time", "length", "mins"), "minutes", NUMBER),
        ),
        (
            "!log {b} minutes of {a}", "I did {a} for {b} minutes", "log workout {a} {b}",
            "!record a workout: {a}, {b} minutes", "{b} minutes of {a}", "!add {b} minutes of {a} to my workouts",
            "Today I did {b} minutes of {a}", "!log my workout {a}, {b} minutes", "I just finished {b} minutes of {a}",
            "!save {b} minutes {a} as a workout", "workout: {a} for {b} minutes", "!track {a} for {b} minutes",
            "I trained {a}, {b} minutes", "!note that I did {a} for {b} minutes", "Can you log {a}, {b} minutes?",
            "My workout was {a} for {b} minutes", "!enter {b} minutes of {a} in my training log",
            "I exercised {b} minutes, {a}", "!put {b} minutes of {a} in the workout log", "Exercise {a}, {b} min",
            "Done: {b} minutes of {a}", "!write down {b} minutes of {a}", "I was busy with {a} for {b} minutes, log it",
            "!store a {b} minute {a} workout", "Could you record {b} minutes of {a}?",
        ),
    ),
    "water": Family(
        (
            "water plant", "water plants", "water garden", "irrigation", "start watering", "sprinkler", "irrigate",
            "watering", "water",
        ),
        (
            "Water the plants in a R for some minutes.", "Starts watering.", "Irrigation of a R.",
            "Gives the plants water.", "Sprinkler for the given R.", "Waters a R for a number of minutes.",
            "Watering by R", "Let water run on the plants.",
        ),
        (
            Slot(("zone", "plant", "place", "location", "area", "room"), "room"),
            Slot(("minutes", "duration", "time", "length", "for"), "minutes", NUMBER),
        ),
        (
            "!water the {a} for {b} minutes", "!water the plants in the {a} for {b} minutes", "water {a} {b}",
            "!let the sprinkler in the {a} run for {b} minutes", "The plants in the {a} need water for {b} minutes",
            "!start watering the {a}, {b} minutes", "{b} minutes of water for the {a}",
            "It is dry in the {a}, water it {b} minutes", "!give the {a} water for {b} minutes",
            "!run the sprinkler in the {a} {b} minutes", "Can you water the {a} for {b} minutes?",
            "!irrigate the {a} for {b} minutes", "watering: {a}, {b} minutes", "I want the {a} watered for {b} minutes",
            "The flowers in the {a} look sad, water them for {b} minutes",
            "!turn on the sprinkler in the {a} for {b} minutes", "!water the {a}, {b} minutes",
            "{b} minutes watering in the {a}, please", "!let water run in the {a} for {b} minutes",
            "Could the {a} get {b} minutes of water?", "!sprinkle the {a} for {b} minutes",
            "In the {a}, water the plants {b} minutes", "Does the {a} need water? Give it {b} minutes",
            "I forgot to water the {a}, {b} minutes please", "Time to water the {a}, {b} minutes",
        ),
    ),
    "cancel booking": Family(
        (
            "cancel booking", "cancel reservation", "delete booking", "cancel", "cancel appointment",
            "drop reservation", "booking cancel", "revoke booking",
        ),
        (
            "Cancel a booking by its R.", "Cancels the reservation with the given R.",
            "Call off an appointment or booking.", "Cancellation of a booking.", "Deletes a reservation.",
            "Cancels what was booked.", "Booking cancellation by R", "Give up a reservation.",
        ),
        (
            Slot(("booking_id", "reservation", "booking", "id", "code", "reference"), "code"),
        ),
        (
            "!cancel booking {a}", "!cancel my booking {a}", "cancel {a}", "!cancel the reservation {a}",
            "I can't come, cancel {a}", "My reservation is {a}, please cancel it", "!call off the booking {a}",
            "I don't need the booking {a} any more", "cancel reservation {a}", "Can I cancel {a}?",
            "I would like to cancel the booking {a}", "!drop my reservation {a}", "We won't come, cancel booking {a}",
            "!delete the booking {a}", "The booking {a} should be cancelled", "cancellation of {a}",
            "!undo the booking {a}", "Is it too late to cancel {a}?", "I have to cancel {a}",
            "!take back the reservation {a}", "Could you cancel the booking with number {a}?",
            "!get rid of my reservation {a}", "Plans have changed, cancel {a}", "Booking {a}: cancel, please",
            "!give up the reservation {a}",
        ),
    ),
    "check in": Family(
        (
            "check in", "flight check in", "online check in", "checkin", "do check in", "hotel check in",
            "self check in", "check in passenger",
        ),
        (
            "Check in for a booking.", "Online check in with a R.", "Checks a passenger or guest in.",
            "Check in to a flight or hotel by R.", "Does the check in for the given R.",
            "Get the boarding pass of a booking.", "Check in by R", "Tell the airline or hotel that a guest comes.",
        ),
        (
            Slot(("booking", "code", "booking_code", "reservation", "confirmation"), "code"),
        ),
        (
            "!check me in for {a}", "!check in for booking {a}", "check in {a}", "!do the check in for {a}",
            "I want to check in, my booking is {a}", "Can I check in for {a}?", "!check us in with the code {a}",
            "My booking code is {a}, check me in", "online check in {a}", "!get me checked in for {a}",
            "I need my boarding pass for {a}", "check in please, {a}", "!check in with the reservation {a}",
            "We are here, the booking is {a}, check in", "!start check in for {a}",
            "Is check in open for {a}? Check me in", "I'd like to check in for {a}", "!complete the check in of {a}",
            "Check-in for {a}", "Could you check me in under {a}?", "!use the code {a} to check in",
            "It's time to check in for {a}", "!finish my check in, code {a}", "Booking {a} needs to be checked in",
            "Please do my online check in for {a}",
        ),
    ),
    "invite": Family(
        (
            "invite user", "add member", "invite", "add user", "invite member", "send invite", "invite to team",
            "add to group", "invite by email",
        ),
        (
            "Invite a user by R to a team.", "Adds somebody to a group.", "Sends an invitation to the given R.",
            "Invites people to a project.", "Add a member to a team.", "Give a person access by R.", "Invitations by R",
            "Invite a person.",
        ),
        (
            Slot(("email", "user", "member", "address", "to"), "email"),
            Slot(("team", "group", "project", "workspace", "to_team"), "topic"),
        ),
        (
            "!invite {a} to {b}", "!add {a} to the team {b}", "invite {a} {b}", "!send an invitation for {b} to {a}",
            "Can you invite {a} to the group {b}?", "I want {a} in the team {b}", "!add {a} to {b}",
            "!let {a} join {b}", "The team {b} has a new member: {a}", "!give {a} access to {b}",
            "The group {b} needs {a}", "!bring {a} into the project {b}", "Could {a} get an invite to {b}?",
            "!make {a} a member of {b}", "new member for {b}: {a}", "!invite the user {a} to join {b}",
            "Please add {a} as a member of {b}", "!put {a} on the team {b}", "Is {a} in {b}? If not, invite",
            "!ask {a} to join {b}", "I'd like to invite {a} to {b}", "!include {a} in the group {b}",
            "Someone new in {b}: invite {a}", "An invitation to {b} for {a}, please", "!get {a} into {b}",
        ),
    ),
    "transfer money": Family(
        (
            "transfer money", "send money", "pay", "make payment", "bank transfer", "transfer", "send payment",
            "wire money", "pay person",
        ),
        (
            "Transfer money to a person.", "Sends an amount of money.", "Pay somebody.",
            "Makes a payment to the given R.", "Bank transfer: to whom and how much.", "Wires money to a R.",
            "Payment to a R", "Pay an amount from the account.",
        ),
        (
            Slot(("recipient", "to", "payee", "person", "name"), "who"),
            Slot(("amount", "sum", "value", "money", "total"), "few", NUMBER),
        ),
        (
            "!send {b} euros to {a}", "!transfer {b} dollars to {a}", "!pay {a} {b} dollars", "pay {a} {b}",
            "!send {a} {b} euros", "I owe {a} {b} euros, pay it", "!transfer {b} to {a}",
            "Can you send {a} {b} dollars?", "{b} euros to {a}", "!make a payment of {b} to {a}",
            "I want to pay {a} {b}", "!wire {b} dollars to {a}", "!give {a} {b} euros from my account",
            "Please pay {b} to {a}", "transfer {b} euros, {a}", "I have to send {b} dollars to {a}",
            "!pay back {b} euros to {a}", "payment to {a}: {b}", "!do a bank transfer of {b} to {a}",
            "My rent is due, pay {a} {b} euros", "Could you transfer {a} {b} euros?", "!move {b} dollars to {a}",
            "I'd like to transfer {b} to {a}", "Money for {a}: {b} euros", "!settle {b} dollars with {a}",
        ),
    ),
    "add to list": Family(
        (
            "add to list", "add item", "shopping list add", "add todo", "list add", "append item", "add task",
            "put on list", "add to shopping list",
        ),
        (
            "Add an item to the N list.", "Puts something on a list.", "Adds a R to the list.",
            "Appends an item to the N.", "New entry of the N list.", "Write something on the list of the user.",
            "List: add a R", "Put the given R on the N list.",
        ),
        (
            Slot(("item", "task", "text", "entry", "what"), "thing"),
        ),
        (
            "!add {a} to the N list", "!put {a} on the N list", "N list: {a}", "!add {a} to my N list",
            "We need {a}, put it on the N list", "!write {a} on the N list", "Can you add {a} to the list?", "add {a}",
            "The N list needs {a}", "!put {a} on my list", "I have to get {a}, add it to the N list",
            "One more thing for the N list: {a}", "!append {a} to the N list", "!note {a} on the N list",
            "Also add {a} to the N list", "We are out of {a}, add it to the list", "!make {a} an item of the N list",
            "On the N list: {a}", "!include {a} in the N list", "new item on the N list: {a}",
            "Could you put {a} on the N list?", "Don't forget {a} on the N list", "!get {a} on the N list",
            "I want {a} on my N list", "Put {a} on there too, the N list",
        ),
    ),
    "volume": Family(
        (
            "set volume", "volume", "change volume", "adjust volume", "volume control", "audio volume", "sound level",
            "set sound",
        ),
        (
            "Set the volume of a N in percent.", "Changes how loud the N is.", "Volume control.",
            "Sets the sound to a R.", "Make the N louder or quieter.", "Audio volume of the N.", "Volume by R",
            "Turn the sound up or down.",
        ),
        (
            Slot(("volume", "level", "percent", "value", "loudness"), "percent", NUMBER),
        ),
        (
            "!set the volume to {a}", "volume {a}", "!turn the volume to {a} percent", "!turn the sound up to {a}",
            "!turn the sound down to {a}", "Volume at {a}, please", "!make it louder, {a} percent",
            "It's too loud, {a} percent", "!set the volume of the N to {a}", "I want the volume at {a}%",
            "!put the volume of the N on {a}", "volume of the N: {a}%", "Can you set the sound to {a} percent?",
            "!lower the volume to {a}", "!raise the volume to {a}", "The N is too quiet, volume {a}", "sound {a}%",
            "!change the volume to {a} percent", "The N should be at volume {a}",
            "I can't hear the N, turn it up to {a}", "!bring the volume down to {a}%",
            "Could we have the N at {a} percent volume?", "!adjust the volume of the N to {a}",
            "The volume should be {a} percent", "I'd like it quieter, volume {a}",
        ),
    ),
    "list": Family(
        (
            "list N", "get N", "show N", "find N", "search N", "all N", "N list", "filter N",
        ),
        (
            "List the N of a R.", "Returns all N for a topic.", "Lists N that have to do with a R.", "All N by R.",
            "Find the N about a R.", "Shows N with the given R.", "N by R", "Filter the N.",
        ),
        (
            Slot(("topic", "category", "tag", "type", "label", "filter"), "topic"),
        ),
        (
            "!list all N about {a}", "!show me the N for {a}", "N about {a}", "Which N are there for {a}?",
            "!find N with the tag {a}", "Do we have any N about {a}?", "!get all N on {a}", "list N {a}",
            "What N do you have for {a}?", "!show all N of the category {a}", "I want to see the N on {a}",
            "!give me a list of N about {a}", "N tagged {a}", "Are there N on {a}?", "!filter the N by {a}",
            "All N with {a}", "!look for N of the type {a}", "I need the N about {a}",
            "How many N are there about {a}?", "!bring me all N labelled {a}", "Could you list the N for {a}?",
            "only N about {a}, please", "!pick out the N on {a}", "Everything we have on {a} in the N",
            "Let me see N about {a}",
        ),
    ),
    "note": Family(
        (
            "save note", "take note", "write note", "add note", "note", "new note", "create note", "memo", "notes add",
        ),
        (
            "Save a note.", "Writes down a R.", "Takes a note for the user.", "Adds a note with the given R.",
            "Keep a text as a note.", "Memo: saves text.", "Notes: add a R", "Create a new note.",
        ),
        (
            Slot(("text", "note", "content", "body", "memo"), "sentence"),
        ),
        (
            "!take a note: {a}", "!write this down: {a}", "note: {a}", "!make a note that says {a}", "!note down {a}",
            "!save this as a note: {a}", "Can you write a note: {a}", "new note: {a}", '!add a note "{a}"',
            "I want to note this: {a}", "!put this in my notes: {a}", "!jot down {a}",
            "Please keep a note of this: {a}", "memo: {a}", "!create a note with the text {a}", "Take this down: {a}",
            "!add to my notes: {a}", "!keep this in a note: {a}", "A note for me: {a}", "I need a note saying {a}",
            '!store the note "{a}"', "Could you note the following: {a}", '!write "{a}" into my notes',
            "My note is: {a}", "Let's note: {a}",
        ),
    ),
    "sentiment": Family(
        (
            "analyze sentiment", "sentiment analysis", "sentiment", "detect sentiment", "text sentiment", "get mood",
            "classify text", "rate sentiment",
        ),
        (
            "Analyze the sentiment of a R.", "Says whether a text is positive or negative.", "Sentiment analysis.",
            "Detects the mood of the given R.", "Classify a text as positive, negative or neutral.",
            "Mood of a sentence.", "Sentiment by R", "How a text sounds.",
        ),
        (
            Slot(("text", "input", "sentence", "content", "message"), "sentence"),
        ),
        (
            'What is the sentiment of "{a}"?', "Is this positive or negative: {a}", '!analyze the sentiment of "{a}"',
            "sentiment: {a}", "!check the mood of this text: {a}", "How does this sound, positive or negative? {a}",
            "!classify this as positive or negative: {a}", 'sentiment of "{a}"', "!do a sentiment analysis of {a}",
            'Is "{a}" a positive sentence?', "!tell me the sentiment: {a}", 'Does "{a}" sound angry?',
            "!rate the sentiment of this: {a}", "Positive or negative? {a}", "I want the sentiment of this text: {a}",
            '!detect the mood in "{a}"', "Would you say this is negative: {a}", "mood: {a}",
            "!find out if this is positive: {a}", 'How positive is "{a}"?', '!run sentiment analysis on "{a}"',
            "What mood is in this: {a}", '!judge the tone of "{a}"', "The tone of this sentence: {a}",
            "Could you tell if this is negative? {a}",
        ),
    ),
}  # fmt: skip
WITHOUT_ARGUMENTS = (
    (
        "get_time", "Get the current time.",
        (
            "What time is it?", "Tell me the time.", "What is the time?", "Do you know what time it is?",
            "What's the time?", "Could you tell me the time?", "How late is it?", "current time please", "time?",
            "Can you check what time it is?",
        ),
    ),
    (
        "get_date", "Get the date of today.",
        (
            "What day is it today?", "What is the date?", "Which date is it today?", "What's the date today?",
            "Which day is today?", "today's date", "Could you tell me the date?", "What day do we have?", "date please",
        ),
    ),
    (
        "list_N", "List all N.",
        (
            "List all N", "Show me all N", "Which N do I have?", "What N are there?", "Give me a list of all N",
            "Which N are there?", "Can you list the N?", "show N", "I want to see all N", "What N do you have?",
        ),
    ),
    (
        "reset_N", "Reset the N.",
        (
            "Reset the N", "Please reset the N", "The N needs a reset", "Can you reset the N?", "Set the N back",
            "reset N", "I want the N reset", "Could you do a reset of the N?", "Put the N back to how it was",
        ),
    ),
    (
        "take_screenshot", "Take a screenshot of the screen.",
        (
            "Take a screenshot", "screenshot", "Can you capture the screen?", "Make a picture of the screen",
            "Please take a screenshot", "I need a screenshot", "Could you grab the screen?",
            "Save what is on my screen as a picture", "Screenshot please",
        ),
    ),
    (
        "get_location", "Get where the user is now.",
        (
            "Where am I?", "What is my location?", "Which city am I in?", "Find my location",
            "Can you tell me where I am?", "my location", "Where are we right now?", "Do you know where I am?",
        ),
    ),
    (
        "tell_joke", "Tell a random joke.",
        (
            "Tell me a joke", "I could use a joke", "Got a joke for me?", "joke please", "I want to hear a joke",
            "Say something funny", "Can you tell a joke?", "Another joke",
        ),
    ),
    (
        "pause_music", "Pause the music that plays.",
        (
            "Pause the music", "Stop the music for a moment", "pause", "Can you pause the song?",
            "Please pause the music", "Hold the music", "I want the music paused", "Could you stop playing for now?",
        ),
    ),
    (
        "flip_coin", "Flip a coin: heads or tails.",
        (
            "Flip a coin", "Heads or tails?", "Toss a coin", "Can you flip a coin?", "coin flip", "Throw a coin for me",
            "Let a coin decide", "I need a coin toss",
        ),
    ),
    (
        "get_battery", "Get the battery level of the device.",
        (
            "How full is the battery?", "battery", "What's the battery level?", "How much battery is left?",
            "Check the battery", "Do I need to charge?", "Is the battery low?", "Show me the battery level",
        ),
    ),
    (
        "count_N", "Count the N.",
        (
            "How many N are there?", "Count the N", "How many N do we have?", "number of N", "Can you count the N?",
            "Tell me how many N there are", "I need the number of N", "What is the count of N?",
        ),
    ),
    (
        "lock_screen", "Lock the screen of the computer.",
        (
            "Lock the screen", "lock my computer", "Can you lock the screen?", "I'm leaving, lock the screen",
            "Please lock my screen", "screen lock", "Lock this computer", "I want the screen locked",
        ),
    ),
)  # fmt: skip
WELL_KNOWN = (
    ("get_weather", "weather", "weather"),
    ("turn_on_light", "turn on", "light"),
    ("send_email", "send", "email"),
    ("calculate", "calculate", "math"),
    ("create_event", "create", "event"),
    ("web_search", "search", "web"),
    ("translate_text", "translate", "text"),
    ("set_alarm", "timer", "alarm"),
    ("set_timer", "timer", "timer"),
    ("play_music", "play", "song"),
    ("send_message", "send", "message"),
    ("add_reminder", "remind", "reminder"),
    ("get_stock_price", "stock price", "stock"),
    ("get_exchange_rate", "exchange rate", "rate"),
    ("get_news", "news", "news"),
    ("get_definition", "define", "word"),
    ("get_directions", "directions", "route"),
    ("get_distance", "distance", "distance"),
    ("get_current_time", "time in", "time"),
    ("get_flight_status", "flight status", "flight"),
    ("track_package", "track parcel", "package"),
    ("get_calendar_events", "list events", "event"),
    ("search_contacts", "contact", "contact"),
    ("make_phone_call", "call", "call"),
    ("create_issue", "create ticket", "issue"),
    ("close_issue", "close ticket", "issue"),
    ("book_flight", "travel", "flight"),
    ("book_table", "reserve", "table"),
    ("send_sms", "send", "sms"),
    ("convert_units", "convert", "unit"),
    ("upload_file", "upload", "file"),
    ("git_commit", "git commit", "commit"),
    ("create_branch", "create branch", "branch"),
    ("deploy_service", "deploy", "service"),
    ("get_logs", "logs", "log"),
    ("post_message", "post", "message"),
    ("find_restaurants", "restaurant", "restaurant"),
    ("get_recipe", "recipe", "recipe"),
    ("generate_password", "password", "password"),
    ("set_thermostat", "thermostat", "thermostat"),
)
"""Tools that many examples on the web have: their name, family, and what they are about."""
LOOKED_UP = tuple(
    """
weather temperature forecast price population time distance traffic stock status balance schedule rating score level
height weight speed humidity exchange rate timetable opening hours address phone number size owner version news menu
definition capital colour length cost
""".split()
)
"""What the tools of the family `look up` look up."""
