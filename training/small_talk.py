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
                 "Greetings", "hello friend", "Hi, nice to meet you", "good evening lamb", "hey hey",
                 "Hello you", "hey there", "Hi my dear lamb", "good morning to you", "Hello, little lamb",
                 "Hi everyone", "heya", "yo", "Good afternoon, Lamb", "Hello from me", "hi hi", "G'day",
                 "Hey, good to see you", "A very good morning", "Well hello", "hello there, Lamb", "evening!",
                 "Hi there!", "Good day", "Hello hello hello", "hey buddy", "I just wanted to say hello",
                 "Hey, I'm back", "oh hi", "Hi, I am new here", "Good evening", "hellooo", "Let me say hi",
                 "Hi and good morning", "Salutations", "Hey you", "helo"),
    "welcome": ("Thanks!", "thank you", "Thank you very much", "Okay, thanks", "Thanks for the help",
    "perfect, thank you",
                "thanks again", "ty", "Great, thank you!", "that helps, thanks", "Thank you, Lamb", "many many thanks",
                "thx", "thanks a bunch", "Cool, thanks", "I thank you",
                "Thanks, that was helpful", "Oh thank you!", "thank u", "Much appreciated", "That was kind, thank you",
                "Cheers, thanks", "Thanks, Lamb!", "thanks for that", "Thank you for your help", "ok thank you",
                "Wonderful, thanks a lot", "I appreciate it", "thanks, that's all I needed", "Nice, thank you",
                "A thousand thanks", "Thanks for telling me", "Good, thanks", "thanks for the answer",
                "Thank you kindly", "yes, thanks", "Many thanks, Lamb", "Thank you, that is what I wanted",
                "thx a lot", "I am grateful", "Thanks thanks", "You helped me a lot, thank you"),
    "goodbye": ("Bye!", "bye for now", "See you", "Goodbye, Lamb", "I have to go, bye", "Good bye", "see you soon",
                "Have a nice day", "talk to you later", "I am done, bye", "bye lamb", "That is all for today",
                "Goodnight", "ok bye", "Bye bye, Lamb", "I'm leaving now", "Time to go, goodbye",
                "cya", "Until next time", "Take care", "later!", "I have to leave", "Good night, Lamb", "So long",
                "we talk tomorrow", "Farewell", "gotta go", "See you later, Lamb", "That's it for now, bye",
                "I am going home now", "bye and take care", "Have a good evening", "See ya",
                "I will be back tomorrow, bye", "I'm off", "Catch you later", "have a great weekend",
                "Bye, it was nice to talk", "Going to bed now, good night", "Let us stop here, goodbye",
                "Well, goodbye then", "ttyl"),
    "self": ("What kind of model are you?", "Who is this?", "what is this", "Which AI are you?", "Are you Claude?",
             "Are you a bot?", "What's Lamb?", "Tell me who you are", "Are you a big model?", "Say who you are.",
             "Are you a machine?", "Which language model are you?", "how large are you?", "who built you?",
             "What should I know about you?", "How should I call you?", "Who am I chatting with?",
             "do you have a body?",
             "how many layers do you have?", "what size is your model?",
             "Introduce yourself.", "Are you a language model?", "who are you exactly?", "What is Lamb?",
             "Tell me something about yourself", "Are you ChatGPT?", "what r u",
             "Are you real?", "How big are you?", "May I ask who you are?", "Is this an AI?", "So you are a robot?",
             "your name?", "What sort of program are you?", "Describe yourself in one sentence",
             "Am I talking to a human?", "Who made you?", "What do they call you?",
             "are you a person or a computer?", "Is Lamb your name?",
             "What exactly are you?", "Why are you so small?", "Are you a small model?", "who is lamb",
             "What were you made for?", "Are you an assistant?", "Could you introduce yourself?",
             "Who is answering me?", "what model am I using?", "Are you alive?", "I'd like to know who you are",
             "What's your purpose?"),
    "abilities": ("What are your abilities?", "show me what you can do", "What tools do you have?", "How do you work?",
                  "what can you do for me", "Tell me what you can do.", "What can I use you for?", "I want help",
                  "please help me", "can you do something for me?", "What is possible here?", "how do I start?",
                  "What could you do for me?", "give me some help", "What features do you have?",
                  "how can you help", "What are you good at?", "Can you help me?",
                  "List your abilities", "what can I ask you?", "I need some help", "Explain what you can do",
                  "What is it that you can do?", "Show me your features", "what do you do?", "How do I use you?",
                  "Any tips on what to ask you?", "what else can you do?", "In which ways can you help me?",
                  "Which things can you do?", "/help", "What are you useful for?", "tell me how you can help",
                  "What can you and what can't you do?", "I don't know what to ask you", "What are my options here?",
                  "help pls", "What may I ask?", "What would you be able to do for me?", "Do you have any tools?",
                  "Got any skills?", "Could you tell me what you can do?", "What sort of things can you do?"),
    "fine": ("How are you, Lamb?", "How do you do?", "how are things?", "Are you well?", "How is your day?", "you ok?",
             "How do you feel?", "all good?", "How are you today, Lamb?", "how's everything?",
             "how r u", "And how are you?", "are you okay?", "How is it going?",
             "Hope you are well?", "how are you feeling", "What's up with you?", "How have you been?",
             "Everything fine with you?", "How's life?", "Are you doing well?", "Is everything all right with you?",
             "How goes it?", "you doing ok?", "So how are you?", "How's your day going?", "Are you having a good day?",
             "Do you feel good today?", "how are ya", "How do you feel right now?", "Tell me how you are",
             "Had a good day?", "Feeling good?", "how was your day?", "Are you happy?", "I hope you are fine?",
             "How are you this morning?", "Life treating you well?"),
    "here": ("Are you still there?", "hello? are you there?", "is anyone there?", "Do you work?", "check",
    "are you awake?",
             "test test", "1 2 3 test", "Is this thing on?", "Can you read this?", "this is a test", "still there?",
             "Are you here?", "anybody here?", "Are you online?", "you there?", "Is somebody there?", "ping",
             "Are you listening?", "Do you hear me?", "Just testing", "Are you working?", "Can you see my message?",
             "lamb, are you there?", "testing, testing", "Does this work?", "knock knock, are you there?",
             "Are you with me?", "Did you get my message?", "Anyone home?", "Only a test", "Are you up?",
             "Are you running?", "You still with me?", "Can you see this?", "does it work now?", "are u there",
             "Still awake?", "Is this chat working?", "Please answer me", "Are you ready?"),
    "joke": ("Tell me another joke.", "Make a joke", "say a joke", "Do you know something funny?", "I want to laugh",
             "entertain me", "Tell me something funny", "know any jokes?", "a joke please", "Joke!",
             "Got a joke?", "One joke, please", "Tell us a joke", "another one, make me laugh", "Can you be funny?",
             "Do you have a joke for me?", "I need a joke", "Give me a good joke", "I want to hear a joke",
             "Let me hear a joke",
             "Would you tell me a joke?", "I'd like to hear something funny", "Make me smile", "Any good jokes?",
             "Can you make a joke?", "Please make me laugh", "What is your best joke?", "Cheer me up with a joke",
             "Do you know any good jokes?", "How about a joke?", "Tell me a sheep joke",
             "say something to make me laugh", "I am bored, tell me a joke", "Be funny",
             "Are you funny? Tell me a joke", "A short joke, please", "Time for a joke",
             "Crack a joke", "one more joke"),
    "pleased": ("Okay", "Good", "Great", "I see", "that is great", "Awesome", "Perfect", "very good", "that worked",
    "wow",
                "nice one", "yes", "fine", "I like you", "Well done",
                "That's good", "Very nice", "excellent", "You are great", "I like that", "Alright", "Good job, Lamb",
                "that's correct", "Great work", "Yes, that's right", "sounds good", "Lovely", "amazing",
                "You did well", "ok cool", "That is exactly right", "Fantastic!", "I love it", "works for me",
                "Brilliant", "Super", "makes sense", "That was good", "You are right", "haha", "Good answer",
                "that looks good", "Impressive", "I am happy with that", "got it", "Yay"),
    "no problem": ("I am sorry", "Sorry about that", "my fault", "oops", "you are wrong", "That is not right.",
    "No, wrong",
                   "that was a mistake", "you made a mistake", "excuse me", "Wrong!",
                   "Oh, sorry", "I apologize", "you got that wrong", "That's not correct",
                   "No, that's not what I meant", "I typed that wrong", "Sorry, wrong word", "That was my mistake",
                   "pardon me", "Not quite right", "whoops", "you misunderstood me", "Please excuse me",
                   "I did not mean that", "That answer was wrong", "sorry, a typo", "forgive me", "I'm so sorry",
                   "That is incorrect", "ups, sorry", "I was wrong", "You were wrong about that", "No, not that",
                   "Sorry for the confusion", "I made a mistake", "my bad, sorry", "Sorry that I asked", "false",
                   "Never mind, my mistake"),
    "unclear": ("?", "??", "!", "hm", "ehh", "...?", "- - -", "#", ";;;", "()",
                "!!", "...", "hmm", "uh", "#?!", "-", "***", ",", "ehm", "mmh", "?!?", "/", "uhh", ":::", "[]", "%%",
                "_ _", "+++", "~", "hmpf", ". . .", "@@", "???!", "<>", "brr", "&", "argl"),
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
        "Hyvää huomenta", "Kuka sinä olet?",
        "Guten Tag, wie geht's?", "Was kannst du?", "Qual è il tuo nome?", "Où habites-tu ?", "Mein Name ist Jonas.",
        "Je ne comprends pas", "¿Puedes ayudarme?", "Wo wohne ich?", "Erzähl mir einen Witz",
        "Raconte-moi une blague", "¿Qué puedes hacer?", "Buongiorno, come va?", "Ich brauche Hilfe", "Hoe heet jij?",
        "Cuéntame un chiste", "¿Dónde está la biblioteca?", "Schreib mir bitte ein Gedicht",
        "Quel temps fait-il aujourd'hui ?", "Me llamo Lucía", "Puoi aiutarmi?", "Kan je me helpen?",
        "Qual é o seu nome?", "Hvad hedder du?", "Kde je nádraží?", "Ile masz lat?", "Hur gammal är du?",
        "Wat kun je doen?", "Raccontami una barzelletta", "Ich verstehe das nicht", "Bună ziua", "Hogy hívnak?",
        "Mitä kuuluu?", "Você fala português?", "Teşekkür ederim", "Unde locuiești?", "Jó reggelt kívánok",
        "Snakker du norsk?", "Nie rozumiem", "Kako si?", "Tot ziens", "Auf Wiedersehen", "À demain", "Hasta mañana",
        "Arrivederci", "Jeg forstår ikke", "Tack så mycket", "Ne demek bu?", "Hvor bor du?",
        "Pourquoi le ciel est-il bleu ?", "Warum ist der Himmel blau?", "¿Por qué no me entiendes?"),
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
    "Do you know who {p} is?", "How big is {c}?", "What can you tell me about {c}?", "Which river flows through {c}?",
    "Who discovered {t}?", "What language do they speak in {c}?", "When was {t} built?",
    "How many {n}s are there in the world?", "Why do people {w}?", "What does {p} do for a living?",
    "Is {c} bigger than {c}?", "Who directed {t}?", "How fast is a {n}?", "Tell me everything about {p}.",
    "what is a {n}", "Where can I buy a {n}?", "Why is {p} so famous?", "How expensive is a {n}?",
    "What's the tallest {n} in {c}?", "Is it true that {t} is {w}?", "Who lived in {c} in {y}?",
    "Who ruled {c} in {y}?",
    "Which {n} is the best in the world?", "What was {p} known for?", "Give me some facts about {c}.",
    "When did {p} die?", "In what year was {c} founded?", "How long does it take to {w} a {n}?",
    "What's the difference between {w} and {n}?", "Have you heard of {t}?", "Who sang {t}?",
    "How did the war of {y} begin?", "Does a {n} have legs?", "Is there life on {c}?",
    "How warm does it get in {c}?", "what do people say about {p}?", "Which country is {c} in?",
    "Can a {n} {w}?", "Should I invest in {n}?", "Who came first, {p} or {p}?", "What do {n}s eat?",
    "Why did {p} leave {c}?", "What's the meaning of {w}?", "Do they have {n}s in {c}?", "What is typical of {c}?",
    "How heavy is {t}?", "Who was the first person in {c}?", "What is {t} about?", "Which team won in {y}?",
    "how do {n}s work", "Who plays the lead in {t}?", "How deep is the sea near {c}?", "What makes a {n} {w}?",
    "Was {p} a good king?", "When does the {n} season start in {c}?", "Who invented {w}?",
    "Did {p} win a prize in {y}?", "Where was {p} born?", "What is {w} made of?", "How can I learn to {w}?",
)  # fmt: skip
WORKS = (
    "Write a poem about {n}.", "Write a story about {p}.", "Translate {w} into {l}.", "Write an essay about {n}",
    "Write me a program that {w}s a {n}.", "Write a {l} song.", "Summarize the book {t}.", "Draw a {n}.",
    "Write code for a {n}",
    "Solve x^2 + {i}x = {j}", "What is the square root of {j}?", "What is {j} * {k}?", "calculate {j} / {i}",
    "What is {j} + {k}?", "Write a letter to {p}.", "Write a short {l} text about {n}.", "How much is {j} times {k}?",
    "Paint me a {n}", "Write a script that {w}s all {n}s", "compute {j} * {k}", "Make a website about {n}.",
    "Compose a song about {n}.", "Translate this into {l}: {w}", "Can you write a poem for {p}?", "Code a {n} in {l}.",
    "How much is {j} divided by {i}?", "I need an essay about {t}.", "Sing me a song about {n}.",
    "Draw me a picture of {p}.", "{j} * {k}", "Could you write a speech about {n}?", "What is {w} called in {l}?",
    "Plan a trip to {t} for me.", "Write a novel about {p} and the {n}", "{j} + {k}", "What is {j} minus {k}?",
    "Build me an app for {n}s.", "Make me a logo for {t}.", "Please translate {t} into {l}.",
    "Write a birthday speech for {p}.",
    "How do you say {w} in {l}?", "Whistle a tune for {p}.", "I want a poem with {w} and {n}",
    "Carve a {n} out of wood.",
    "Generate a picture of a {n}", "Teach me {l}.", "{j} - {k} = ?", "Write a haiku on {w}.", "Cook {n} for {p}.",
    "Review the novel {t}.", "Find the derivative of {i}x^2.", "Make a video about {n}s", "Work out {j} times {k}.",
    "Design a {n} for {p}.", "Prove that {t} is true.", "Invent a game with a {n}.", "please write a long text on {w}",
    "Give me a recipe with {n}", "Speak {l} with me.", "What is {i} percent of {j}?", "Write song lyrics about {p}",
    "Can you draw?", "Rhyme something on {w}",
)  # fmt: skip
LANGUAGES = ("French", "German", "Spanish", "Italian", "Python", "Dutch", "Greek", "Polish", "Latin")
SUMS = ("What is {a} {o} {b}?", "{a} {o} {b}", "How much is {a} {o} {b}?", "what's {a}{o}{b}", "{a}{o}{b}",
"{a} {o} {b} = ?",
        "Calculate {a} {o} {b}", "{a} {o} {b}?", "What does {a} {o} {b} make?", "how much is {a} {o} {b}",
        "What is {a}{o}{b}?",
        "{a}{o}{b}?", "{a}{o}{b}=", "What do you get for {a} {o} {b}?", "{a} {o} {b} is what?",
        "Can you work out {a} {o} {b}?", "tell me {a} {o} {b}", "{a} {o} {b} =", "Compute {a} {o} {b}",
        "Do you know what {a} {o} {b} is?", "how much does {a} {o} {b} make?", "{a} {o} {b} equals what?",
        "what is {a} {o} {b}", "Please calculate {a} {o} {b}.", "And {a} {o} {b}?", "{a} {o} {b} makes?",
        "I need {a} {o} {b}", "Can you tell me how much {a} {o} {b} is?", "Solve {a} {o} {b}", "{a} {o} {b} pls",
        "So what is {a} {o} {b}?", "What's the result of {a} {o} {b}?", "How many is {a} {o} {b}?",
        "if I have {a} {o} {b}, what is that?", "{a} {o} {b}, how much?", "Work out {a} {o} {b}.",
        "Give me the result of {a} {o} {b}", "what does {a} {o} {b} equal", "Quick: {a} {o} {b}")  # fmt: skip
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
        "Repeat: {}", "Say {}", "Repeat after me: {}", "Please repeat: {}", "Echo {}", "Say this: {}",
        "{}\nRepeat that.", "Repeat the following: {}", "Please say: {}", "Just say {}", "repeat {}",
        "Say exactly this: {}", 'Say "{}"', "Now repeat: {}", "Can you repeat this? {}", "Answer with {}",
        "{}\nSay that again.", "Repeat my words: {}", "Reply with: {}", "Give this back to me: {}", 'Please say "{}"',
        "Repeat what I say: {}", "say it back: {}", "Respond with {}", "{}\nPlease repeat what I said.", 'Repeat "{}"',
        "I want you to say: {}",
    )  # fmt: skip
    return draw.wording(wordings).format(said), said


def two_in_one(draw: Draw) -> tuple[str, str]:
    """A greeting, and something else behind it."""
    greeting = draw.of(
        "Hi.", "Hello.", "Hey!", "Hello!", "Good morning.", "Hi Lamb.", "Good evening!", "Ok.", "Thanks.", "Hey.",
        "Hi!", "Hi there.", "Hello Lamb.", "Okay.", "Great.", "Hey Lamb,", "Morning.", "hi",
        "Hello again.", "Good day!", "Nice.", "Alright.", "Well,", "Thank you.", "Howdy.", "Hey there!",
        "Hello, hello.", "Hi again!", "Perfect, thanks.",
    )  # fmt: skip
    said, answer = draw.made(lambda: small_talk(draw), lambda: small_sum(draw), lambda: unknown(draw))
    return f"{greeting} {cap(said)}", answer


REMARKS = (
    "I think ", "Today I saw that ", "Let us talk about ", "I heard that ", "They say ", "It seems that ",
    "I read that ", "I noticed that ", "My colleague says ", "On my way home I saw that ", "Guess what: ",
    "In the news: ", "I dreamed that ", "Somebody told me: ", "I was thinking about ", "It looks like ",
    "People say that ", "Yesterday it was like this: ",
)  # fmt: skip


def remark(draw: Draw) -> tuple[str, str]:
    """Anything that stands between what matters."""
    return draw.made(
        lambda: small_talk(draw),
        lambda: small_talk(draw),
        lambda: small_sum(draw),
        lambda: unknown(draw),
        lambda: echo(draw),
        lambda: (draw.pick(REMARKS) + draw.sentence(), "I see."),
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
