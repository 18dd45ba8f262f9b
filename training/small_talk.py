"""What needs neither memory nor tools: greetings, who it is, small sums, and what it does not know.

The words of the first hour's sentences that training may see are rows here, by the form of their answer
(`first_hour.toml`); further wordings stand below. It declines rather than invents.
"""

from __future__ import annotations

from functools import cache

from training import first_hour
from training.chat import Chat, says
from training.draw import Draw, cap

ANSWERS = {
    "greeting": "Hello! How can I help you?",
    "welcome": "You are welcome!",
    "goodbye": "Goodbye! Have a nice day.",
    "self": "I am Lamb, a tiny language model made for demos and tests.",
    "abilities": "I can chat a little, remember what you tell me, and use tools for files and commands.",
    "fine": "I am fine, thank you. How can I help?",
    "here": "Yes, I am here.",
    "joke": "Why did the lamb cross the road? To get to the baa-ker's.",
    "pleased": "Glad to hear it.",
    "no problem": "No problem at all.",
    "unknown": "I am a tiny model and don't know that.",
    "unable": "I am a tiny model and cannot do that.",
    "english": "Sorry, I am a tiny model and know English only.",
    "unclear": "I did not understand that.",
}
"""One for each form that is asked for without a fact or a call."""
MORE: dict[str, tuple[str, ...]] = {
    "greeting": ("Hiya", "Hello again", "hi lamb", "Hey Lamb", "hello, hello", "Good morning, Lamb", "Morning!",
    "Howdy",
                 "Greetings", "hello friend", "Hi, nice to meet you", "good evening lamb", "hey hey"),
    "welcome": ("Thanks!", "thank you", "Thank you very much", "Okay, thanks", "Thanks for the help",
    "perfect, thank you",
                "thanks again", "ty", "Great, thank you!", "that helps, thanks", "Thank you, Lamb", "many many thanks"),
    "goodbye": ("Bye!", "bye for now", "See you", "Goodbye, Lamb", "I have to go, bye", "Good bye", "see you soon",
                "Have a nice day", "talk to you later", "I am done, bye", "bye lamb", "That is all for today"),
    "self": ("What kind of model are you?", "Who is this?", "what is this", "Which AI are you?", "Are you Claude?",
             "Are you a bot?", "What's Lamb?", "Tell me who you are", "Are you a big model?", "Say who you are.",
             "Are you a machine?", "Which language model are you?", "how large are you?", "who built you?",
             "What should I know about you?", "How should I call you?", "Who am I chatting with?",
             "do you have a body?",
             "how many layers do you have?", "what size is your model?"),
    "abilities": ("What are your abilities?", "show me what you can do", "What tools do you have?", "How do you work?",
                  "what can you do for me", "Tell me what you can do.", "What can I use you for?", "I want help",
                  "please help me", "can you do something for me?", "What is possible here?", "how do I start?",
                  "What could you do for me?", "give me some help", "What features do you have?"),
    "fine": ("How are you, Lamb?", "How do you do?", "how are things?", "Are you well?", "How is your day?", "you ok?",
             "How do you feel?", "all good?", "How are you today, Lamb?", "how's everything?"),
    "here": ("Are you still there?", "hello? are you there?", "is anyone there?", "Do you work?", "check",
    "are you awake?",
             "test test", "1 2 3 test", "Is this thing on?", "Can you read this?", "this is a test", "still there?"),
    "joke": ("Tell me another joke.", "Make a joke", "say a joke", "Do you know something funny?", "I want to laugh",
             "entertain me", "Tell me something funny", "know any jokes?", "a joke please", "Joke!"),
    "pleased": ("Okay", "Good", "Great", "I see", "that is great", "Awesome", "Perfect", "very good", "that worked",
    "wow",
                "nice one", "yes", "fine", "I like you", "Well done"),
    "no problem": ("I am sorry", "Sorry about that", "my fault", "oops", "you are wrong", "That is not right.",
    "No, wrong",
                   "that was a mistake", "you made a mistake", "excuse me", "Wrong!"),
    "unclear": ("?", "??", "!", "hm", "ehh", "...?", "- - -", "#", ";;;", "()"),
    "english": (
        "Hallo", "Guten Abend", "Wie geht es Ihnen?", "Wer ist da?", "Was ist das?", "Sprichst du Deutsch?",
        "Ich heiße Anna.",
        "Bitte hilf mir", "Danke schön", "Tschüss", "Kannst du mir helfen?", "Wie alt bist du?", "Wo bist du?",
        "Salut", "Bonjour, comment allez-vous ?", "Qui êtes-vous ?", "Merci beaucoup", "Parlez-vous français ?",
        "Je m'appelle Marie.", "Au revoir", "Quelle heure est-il ?", "Que peux-tu faire ?", "Hola", "Buenas noches",
        "¿Cómo te llamas?", "Muchas gracias", "¿Hablas español?", "¿Qué hora es?", "Adiós", "Buonasera", "Chi sei?",
        "Come ti chiami?", "Grazie mille", "Parli italiano?", "Che ore sono?", "Goedemorgen", "Wie ben jij?",
        "Dank je wel",
        "Hej, hur mår du?", "Vad heter du?", "God morgen", "Hvem er du?", "Cześć", "Jak się masz?", "Dziękuję",
        "Dobrý den",
        "Merhaba", "Nasılsın?", "Здравствуйте", "Кто ты?", "Спасибо", "Что ты умеешь?",
        "你是谁?", "谢谢", "你会说中文吗?",
        "あなたは誰ですか", "ありがとう", "안녕하세요", "مرحبا",
        "नमस्ते", "Γεια σου", "Bom dia", "Quem é você?", "Obrigado",
        "Hyvää huomenta", "Kuka sinä olet?"),
}  # fmt: skip
KNOWN = (
    (("What is the capital of France?", "capital of France?"), "The capital of France is Paris."),
    (("What colour is the sky?", "What color is the sky?"), "The sky is blue."),
    (("How many days are in a week?", "How many days has a week?"), "There are seven days in a week."),
    (("What sound does a sheep make?", "What does a sheep say?"), "A sheep says baa."),
)
"""All that it knows of the world."""
WORLD = (
    "Who is {p}?", "Who was {p}?", "What is the capital of {c}?", "Who wrote {t}?", "How tall is {t}?", "What is {t}?",
    "Who invented the {n}?", "When was {p} born?", "How does a {n} work?", "How old is {p}?", "Explain {w} to me.",
    "Where is {c}?", "What does {w} mean?", "Tell me about {t}.", "Who is the king of {c}?",
    "How many people live in {c}?",
    "What is the best {n}?", "Why is the {n} {w}?", "Who won the {n} in {y}?", "When did the {n} {w} end?",
    "What is the weather in {c}?", "Who painted the {t}?", "How far is {c}?", "What happened in {y}?", "Is {p} famous?",
    "Explain {t}", "How do I cook {n}?", "What is the population of {c}?", "how old is the {n}?",
    "Who is the president of {c}?",
    "Will it {w} tomorrow?", "What is the history of {c}?", "What is {w}synthesis?", "define {w}", "Who founded {t}?",
)  # fmt: skip
WORKS = (
    "Write a poem about {n}.", "Write a story about {p}.", "Translate {w} into {l}.", "Write an essay about {n}",
    "Write me a program that {w}s a {n}.", "Write a {l} song.", "Summarize the book {t}.", "Draw a {n}.",
    "Write code for a {n}",
    "Solve x^2 + {i}x = {j}", "What is the square root of {j}?", "What is {j} * {k}?", "calculate {j} / {i}",
    "What is {j} + {k}?", "Write a letter to {p}.", "Write a short {l} text about {n}.", "How much is {j} times {k}?",
    "Paint me a {n}", "Write a script that {w}s all {n}s", "compute {j} * {k}", "Make a website about {n}.",
)  # fmt: skip
LANGUAGES = ("French", "German", "Spanish", "Italian", "Python", "Dutch", "Greek", "Polish", "Latin")
SUMS = ("What is {a} {o} {b}?", "{a} {o} {b}", "How much is {a} {o} {b}?", "what's {a}{o}{b}", "{a}{o}{b}",
"{a} {o} {b} = ?",
        "Calculate {a} {o} {b}", "{a} {o} {b}?", "What does {a} {o} {b} make?", "how much is {a} {o} {b}",
        "What is {a}{o}{b}?")  # fmt: skip
SIGNS = {"+": ("+", "plus"), "-": ("-", "minus"), "*": ("*", "times", "x")}


@cache
def of_first_hour() -> dict[str, tuple[str, ...]]:
    """The first hour's sentences that training may see, by the form of the answer."""
    found: dict[str, list[str]] = {form: [] for form in ANSWERS}
    for sentence in first_hour.load()[0]:
        is_plain = sentence.reply and sentence.calls == ((),) and not sentence.any_calls and len(sentence.say) == 1
        if is_plain and not sentence.is_held_out and sentence.reply[0] in found:
            found[sentence.reply[0]].append(sentence.say[0])
    return {form: tuple(said) for form, said in found.items()}


def typed(draw: Draw, form: str) -> str:
    """What has an answer of this form; in the evaluation, only what training never says."""
    seen, more = of_first_hour()[form], MORE.get(form, ())
    return varied(
        draw, draw.pick(seen) if seen and not draw.held_out and (not more or draw.often(0.5)) else draw.wording(more)
    )


SHARES = (
    ("greeting", 10), ("welcome", 8), ("goodbye", 7), ("self", 12), ("abilities", 11), ("fine", 7), ("here", 7),
    ("joke", 6),
    ("pleased", 7), ("no problem", 5), ("english", 12), ("unclear", 10),
)  # fmt: skip


def small_talk(draw: Draw) -> tuple[str, str]:
    """What is said, and the answer."""
    form = draw.weighted(SHARES)
    if form == "unclear" and draw.often(0.6):
        return gibberish(draw), ANSWERS[form]
    return typed(draw, form), ANSWERS[form]


def varied(draw: Draw, said: str) -> str:
    """The same in another spelling, as people type."""
    style = draw.weighted((("as it is", 60), ("small", 20), ("open", 12), ("!", 5), ("joined", 3)))
    match style:
        case "small":
            return said[0].lower() + said[1:]
        case "open":
            return said.rstrip(".?!") or said
        case "!":
            return said.rstrip(".!") + "!" if said[-1] not in "?!" else said
        case "joined":
            return f"{said.rstrip('.?!')}, {draw.of('please', 'Lamb')}{said[-1] if said[-1] in '.?!' else ''}"
    return said


def gibberish(draw: Draw) -> str:
    part = "".join(draw.pick("asdfghjklqwertyzxcvbnm") for _ in range(draw.whole(2, 7)))
    return draw.made(
        lambda: part,
        lambda: f"{part} {part}",
        lambda: part + "".join(draw.pick("asdfjkl") for _ in range(draw.whole(2, 6))),
        lambda: draw.pick("?!.xyz#") * draw.whole(3, 8),
        lambda: draw.digits(draw.whole(6, 10)),
    )


def small_sum(draw: Draw) -> tuple[str, str]:
    sign = draw.pick(tuple(SIGNS))
    a, b = (draw.whole(0, 10), draw.whole(0, 10)) if sign == "*" else (draw.whole(0, 50), draw.whole(0, 50))
    if draw.often(0.6) and sign != "*":
        a, b = a % 13, b % 13
    a, b = (max(a, b), min(a, b)) if sign == "-" else (a, b)
    total = {"+": a + b, "-": a - b, "*": a * b}[sign]
    word = draw.pick(SIGNS[sign])
    wording = draw.wording(SUMS if word == sign else [each for each in SUMS if "{a}{o}" not in each])
    return wording.format(a=a, o=word, b=b), f"{a} {sign} {b} is {total}."


def sums(draw: Draw) -> Chat:
    """One small sum after the other: each pair of numbers is learnt by heart, and has to be seen often."""
    made = Chat()
    for _ in range(draw.whole(10, 45)):
        said, answer = small_sum(draw)
        made.ask(said, says(answer))
    return made


def unknown(draw: Draw) -> tuple[str, str]:
    """A question that a tiny model cannot answer, or a work that it cannot do."""
    if draw.often(0.08):
        questions, answer = draw.pick(KNOWN)
        return draw.pick(questions), answer
    slots = {
        "p": draw.person(), "c": draw.place(), "t": cap(draw.phrase(3)), "n": draw.word(), "w": draw.word(),
        "y": draw.whole(1000, 2030), "l": draw.pick(LANGUAGES), "i": draw.whole(2, 99), "j": draw.whole(200, 99999),
        "k": draw.whole(200, 99999),
    }  # fmt: skip
    form, table = draw.of(("unknown", WORLD), ("unknown", WORLD), ("unable", WORKS))
    if draw.often(0.2) and not draw.held_out:
        return typed(draw, form), ANSWERS[form]
    return varied(draw, draw.wording(table).format(**slots)), ANSWERS[form]


def echo(draw: Draw) -> tuple[str, str]:
    said = draw.made(draw.value, draw.phrase, draw.sentence)
    wordings = (
        "Repeat: {}",
        "Say {}",
        "Repeat after me: {}",
        "Please repeat: {}",
        "Echo {}",
        "Say this: {}",
        "{}\nRepeat that.",
    )
    return draw.wording(wordings).format(said), said


def two_in_one(draw: Draw) -> tuple[str, str]:
    """A greeting, and something else behind it."""
    greeting = draw.of(
        "Hi.", "Hello.", "Hey!", "Hello!", "Good morning.", "Hi Lamb.", "Good evening!", "Ok.", "Thanks."
    )
    said, answer = draw.made(lambda: small_talk(draw), lambda: small_sum(draw), lambda: unknown(draw))
    return f"{greeting} {cap(said)}", answer


def remark(draw: Draw) -> tuple[str, str]:
    """Anything that stands between what matters."""
    return draw.made(
        lambda: small_talk(draw),
        lambda: small_talk(draw),
        lambda: small_sum(draw),
        lambda: unknown(draw),
        lambda: echo(draw),
        lambda: (draw.of("I think ", "Today I saw that ", "Let us talk about ") + draw.sentence(), "I see."),
    )


def story(draw: Draw) -> str:
    begin = draw.of("Let me tell you a story. ", "Here is my day: ", "A long note: ", "I read this: ", "")
    return begin + " ".join(cap(draw.sentence()).rstrip(".") + "." for _ in range(draw.whole(3, 14)))


def listing(draw: Draw) -> str:
    begin = draw.of("Here is a list: ", "My list: ", "Things I saw: ", "Some words: ")
    return begin + ", ".join(draw.value() if draw.often(0.4) else draw.word() for _ in range(draw.whole(4, 25)))


def chat(draw: Draw) -> Chat:
    made = Chat()
    for _ in range(draw.weighted(((1, 20), (4, 30), (12, 30), (30, 20)))):
        said, answer = draw.weighted(((small_talk, 45), (small_sum, 28), (unknown, 17), (echo, 2), (two_in_one, 8)))(
            draw
        )
        made.ask(said, says(answer))
    return made
