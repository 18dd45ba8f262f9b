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
        ("get weather", "weather", "get current weather", "check weather", "get forecast", "current weather"),
        ("Get the weather for a R", "Get the current weather in a given R.", "The weather PREP a R.", "Weather in a R"),
        (Slot(("city", "location", "place"), "place"),),
        (
            "What is the weather in {a}?",
            "What's the weather like in {a}?",
            "What is the weather like in {a} today?",
            "How is the weather in {a}?",
            "Tell me about the weather in {a}",
            "weather in {a}",
            "What's the weather in {a}?",
            "!get the weather for {a}",
            "Is it raining in {a}?",
            "How warm is it in {a}?",
            "!check the weather in {a}",
            "weather {a}",
            "How is the weather in {a} today?",
        ),
    ),
    "look up": Family(
        ("get N", "fetch N", "N", "lookup N", "N info", "check N", "get current N", "find N", "read N"),
        (
            "Get the N PREP a R.",
            "Get the current N PREP a R.",
            "Returns the N PREP the given R.",
            "Look up the N PREP a R",
            "Find out the N PREP a R.",
            "N PREP a R.",
        ),
        (
            Slot(
                (
                    "city",
                    "location",
                    "place",
                    "town",
                    "region",
                    "area",
                    "name",
                    "item",
                    "station",
                    "product",
                    "id",
                    "country",
                ),
                "place",
            ),
        ),
        (
            "What is the N PREP {a}?",
            "What's the N PREP {a}?",
            "How is the N PREP {a}?",
            "!get the N PREP {a}",
            "!check the N PREP {a}",
            "!tell me the N PREP {a}",
            "!show me the N PREP {a}",
            "N PREP {a}",
            "!find the N PREP {a}",
            "I need the N PREP {a}",
            "I want to know the N PREP {a}",
            "Do you know the N PREP {a}?",
            "What N does {a} have?",
            "Tell me about the N PREP {a}",
            "What will the N be PREP {a}?",
            "N PREP {a}?",
            "What is the N like PREP {a}?",
        ),
    ),
    "turn on": Family(
        ("turn on N", "switch on N", "N on", "enable N", "start N", "activate N"),
        ("Turn on the N in a R.", "Switches the N in a R on.", "Activate the N of a R.", "Turn the N on."),
        (Slot(("room", "place", "zone", "area", "location"), "room"),),
        (
            "!turn on the N in the {a}",
            "!switch on the N in the {a}",
            "!turn the N in the {a} on",
            "N on in the {a}, please",
            "N on in the {a}",
            "I need the N on in the {a}",
            "I want the N in the {a} on",
            "!start the N in the {a}",
            "!switch the {a} N on",
            "!activate the N in the {a}",
        ),
    ),
    "turn off": Family(
        ("turn off N", "switch off N", "N off", "disable N", "stop N", "shut N"),
        ("Turn off the N in a R.", "Switches the N in a R off.", "Stop the N of a R.", "Turn the N off."),
        (Slot(("room", "place", "zone", "area", "location"), "room"),),
        (
            "!turn off the N in the {a}",
            "!switch off the N in the {a}",
            "!turn the N in the {a} off",
            "N off in the {a}, please",
            "I want the N in the {a} off",
            "!stop the N in the {a}",
            "!switch the {a} N off",
        ),
    ),
    "set": Family(
        ("set N", "set N level", "change N", "adjust N"),
        ("Set the N in a R.", "Change the N of a R to a value.", "Adjust the N."),
        (
            Slot(("room", "place", "device", "zone", "name"), "room"),
            Slot(("value", "level", "degrees", "amount", "percent"), "amount", NUMBER),
        ),
        (
            "!set the N in the {a} to {b}",
            "!change the N in the {a} to {b}",
            "Make the N in the {a} {b}",
            "!put the N in the {a} at {b}",
            "I want the N in the {a} at {b}",
            "N in the {a} to {b}, please",
            "!adjust the {a} N to {b}",
        ),
    ),
    "convert": Family(
        ("convert N", "convert", "N converter", "to unit"),
        ("Convert a N to another R.", "Converts a value into another R.", "N conversion."),
        (
            Slot(("amount", "value", "number", "quantity"), "amount", NUMBER),
            Slot(("unit", "target", "to", "currency"), "unit"),
        ),
        (
            "!convert {a} to {b}",
            "!convert {a} into {b}",
            "I need {a} converted to {b}",
            "How much is {a} in {b}?",
            "What is {a} in {b}?",
            "{a} in {b}, please",
            "How many {b} are {a}?",
            "!turn {a} into {b}",
        ),
    ),
    "send": Family(
        ("send N", "N send", "post N", "write N", "deliver N"),
        ("Send a N to someone.", "Sends a N to a person.", "Write a N to a R."),
        (
            Slot(("to", "recipient", "user", "person", "contact", "receiver"), "who"),
            Slot(("body", "text", "message", "content"), "message"),
        ),
        (
            "!send a N to {a} saying {b}",
            "!send {a} a N saying {b}",
            "N {a}: {b}",
            "!write a N to {a}: {b}",
            "!send a N to {a} with the text {b}",
            "!tell {a} by N: {b}",
            "!let {a} know by N that {b}",
            "N to {a}: {b}",
            'Send {a} the N "{b}"',
            "!send the N {b} to {a}",
        ),
    ),
    "create": Family(
        ("create N", "add N", "new N", "schedule N", "make N", "plan N"),
        ("Create a N.", "Add a N to the calendar.", "Schedule a N on a date.", "Plan a new N."),
        (
            Slot(("title", "name", "subject", "label", "what"), "thing"),
            Slot(("date", "day", "when", "time"), "date"),
        ),
        (
            "!create a N {a} on {b}",
            "!add a N called {a} on {b}",
            "Put {a} in my N for {b}",
            "!schedule a N {a} for {b}",
            "New N: {a}, {b}",
            "!make a N {a} for {b}",
            "I need a N {a} on {b}",
            "!plan {a} for {b}",
            "!add {a} to my N on {b}",
            "N {a} on {b}, please",
            "I have {a} on {b}, put it in the N",
        ),
    ),
    "search": Family(
        ("search N", "N search", "find in N", "query N", "lookup in N"),
        ("Search the N.", "Find something in the N.", "Search the N for a R.", "Full text search in the N."),
        (Slot(("query", "q", "term", "text", "keyword", "phrase"), "thing"),),
        (
            "!search the N for {a}",
            "!look up {a} in the N",
            "!look up {a} on the N",
            "!find {a} in the N",
            "!look for {a} in the N",
            "!search {a} in the N",
            "What does the N say about {a}?",
            "!search for {a} in the N",
            "N search: {a}",
            "Is there anything about {a} in the N?",
        ),
    ),
    "calculate": Family(
        ("calculate N", "evaluate", "compute", "math", "solve", "calc", "eval expression"),
        ("Evaluate a math R.", "Compute the result of a R.", "Calculate a R", "Does arithmetic."),
        (Slot(("expression", "formula", "input", "expr", "term"), "sum"),),
        (
            "!calculate {a}",
            "What is {a}?",
            "How much is {a}?",
            "!compute {a}",
            "!evaluate {a}",
            "!work out {a}",
            "{a}",
            "What does {a} make?",
            "!solve {a}",
            "{a} = ?",
            "What's {a}?",
        ),
    ),
    "translate": Family(
        ("translate", "translate N", "translate to", "N translator"),
        ("Translate text into a language.", "Translates a R.", "Translate a N into another language."),
        (
            Slot(("text", "phrase", "sentence", "input", "source"), "thing"),
            Slot(("language", "target", "to", "lang"), "language"),
        ),
        (
            '!translate "{a}" into {b}',
            "!translate {a} to {b}",
            "How do you say {a} in {b}?",
            "What is {a} in {b}?",
            "!say {a} in {b}",
            "{a} in {b}?",
            "I need {a} translated into {b}",
            "What is the {b} word for {a}?",
            "!translate {a} into {b}",
        ),
    ),
    "timer": Family(
        ("set timer", "start N", "N timer", "set N", "wake", "countdown"),
        ("Set a N for some minutes.", "Starts a N.", "N with a number of minutes."),
        (Slot(("minutes", "duration", "length", "time"), "minutes", NUMBER),),
        (
            "!set a N for {a} minutes",
            "!start a N of {a} minutes",
            "{a} minutes N, please",
            "N for {a} minutes",
            "I need a N for {a} minutes",
            "!give me a {a} minute N",
            "!wake me in {a} minutes with the N",
        ),
    ),
    "play": Family(
        ("play N", "start N", "put on N", "stream N"),
        ("Play a N.", "Plays the N with this R.", "Start a N by R."),
        (Slot(("title", "name", "track", "what", "query"), "thing"),),
        (
            "!play {a}",
            "!play the N {a}",
            "!put on {a}",
            "I want to hear {a}",
            "!start the N {a}",
            "I would like to hear the N {a}",
            "Some {a}, please",
            "!play me {a}",
        ),
    ),
    "order": Family(
        ("order N", "buy N", "N order", "purchase N"),
        ("Order some N.", "Order items.", "Buy a number of a R.", "Places an order for N."),
        (
            Slot(("quantity", "count", "amount", "number"), "few", NUMBER),
            Slot(("item", "product", "article", "what", "name"), "thing"),
        ),
        (
            "!order {a} {b}",
            "I would like {a} {b}",
            "!buy {a} {b}",
            "Get me {a} {b}",
            "I need {a} {b}",
            "{a} {b}, please",
            "!order {a} of {b}",
            "We need {a} {b}",
        ),
    ),
    "travel": Family(
        ("book N", "reserve N", "get N ticket", "find N"),
        ("Book a N from one place to another.", "Reserve a N.", "N booking."),
        (
            Slot(("from", "origin", "start", "departure"), "place"),
            Slot(("to", "destination", "target", "arrival"), "place"),
        ),
        (
            "!book a N from {a} to {b}",
            "I need a N from {a} to {b}",
            "N from {a} to {b}",
            "!reserve a N from {a} to {b}",
            "!find me a N from {a} to {b}",
            "How do I get from {a} to {b} by N?",
            "I want to go from {a} to {b} by N",
            "!get me a N from {a} to {b}",
        ),
    ),
    "reserve": Family(
        ("book N", "reserve N", "make N reservation"),
        ("Book a N for a number of people.", "Reserve a N.", "N reservation."),
        (
            Slot(("name", "place", "where", "restaurant"), "place"),
            Slot(("people", "guests", "count", "seats"), "few", ("integer",)),
            Slot(("date", "day", "time", "when"), "date"),
        ),
        (
            "!book a N at {a} for {b} people on {c}",
            "!reserve a N at {a} for {b} on {c}",
            "I need a N at {a} for {b} people on {c}",
            "N at {a}, {b} people, {c}",
            "A N for {b} at {a} on {c}, please",
        ),
    ),
    "delete": Family(
        ("delete N", "remove N", "cancel N", "clear N", "close N"),
        ("Delete a N.", "Remove a N by its R.", "Cancel the N with this R."),
        (Slot(("id", "name", "number", "key", "title"), "label"),),
        (
            "!delete the N {a}",
            "!remove the N {a}",
            "!cancel N {a}",
            "I no longer need the N {a}",
            "!get rid of the N {a}",
            "Delete {a} from my N list",
            "!close the N {a}",
        ),
    ),
    "remind": Family(
        ("remind", "add reminder", "set reminder", "create N"),
        ("Set a reminder.", "Remind the user of something at a time.", "Adds a N."),
        (
            Slot(("text", "what", "task", "title"), "thing"),
            Slot(("time", "when", "date", "at"), "date"),
        ),
        (
            "Remind me of {a} on {b}",
            "!remind me about {a} at {b}",
            "Do not let me forget {a} on {b}",
            "!set a reminder for {a} at {b}",
            "Reminder: {a}, {b}",
        ),
    ),
    "open": Family(
        ("open N", "launch N", "show N", "display N", "go to N"),
        ("Open a N.", "Show the N with this R.", "Displays a N."),
        (Slot(("name", "id", "title", "page", "key"), "thing"),),
        (
            "!open the N {a}",
            "!show me the N {a}",
            "!launch {a}",
            "Where is the N {a}?",
            "I want to see the N {a}",
            "!bring up the N {a}",
            "!display {a}",
        ),
    ),
    "do": Family(
        ("N V", "V N", "V", "V N now"),
        ("V a N.", "V the N.", "Vs a R", "V something with a R."),
        (Slot(("name", "target", "id", "value", "item", "key"), "label"),),
        (
            "!V the N {a}",
            "!V {a}",
            "!V a N called {a}",
            "I need the N {a} Ved",
            "I want to V {a}",
            "Let us V the N {a}",
        ),
    ),
    "do with": Family(
        ("V N", "N V", "V"),
        ("V a N with a R.", "V the N.", "V a number of N."),
        (
            Slot(("name", "target", "item", "key"), "label"),
            Slot(("count", "amount", "size", "level", "steps"), "amount", NUMBER),
        ),
        ("!V the N {a} {b} times", "!V {a} with {b}", "!V the N {a} at {b}", "V {b} of {a}", "I need {a} Ved by {b}"),
    ),
}
WITHOUT_ARGUMENTS = (
    (
        "get_time",
        "Get the current time.",
        ("What time is it?", "Tell me the time.", "What is the time?", "Do you know what time it is?"),
    ),
    ("get_date", "Get the date of today.", ("What day is it today?", "What is the date?", "Which date is it today?")),
    ("list_N", "List all N.", ("List all N", "Show me all N", "Which N do I have?", "What N are there?")),
    ("reset_N", "Reset the N.", ("Reset the N", "Please reset the N", "The N needs a reset")),
)
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
