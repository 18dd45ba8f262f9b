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
                "thanks again", "ty", "Great, thank you!", "that helps, thanks", "Thank you, Lamb",
                "many many thanks",
                "thx", "thanks a bunch", "Cool, thanks", "I thank you",
                "Thanks, that was helpful", "Oh thank you!", "thank u", "Much appreciated",
                "That was kind, thank you",
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
    "abilities": ("What are your abilities?", "show me what you can do", "What tools do you have?",
    "How do you work?",
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
    "fine": ("How are you, Lamb?", "How do you do?", "how are things?", "Are you well?", "How is your day?",
    "you ok?",
             "How do you feel?", "all good?", "How are you today, Lamb?", "how's everything?",
             "how r u", "And how are you?", "are you okay?", "How is it going?",
             "Hope you are well?", "how are you feeling", "What's up with you?", "How have you been?",
             "Everything fine with you?", "How's life?", "Are you doing well?", "Is everything all right with you?",
             "How goes it?", "you doing ok?", "So how are you?", "How's your day going?",
             "Are you having a good day?",
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
WIDER: dict[str, tuple[str, ...]] = {
    "greeting": (
        "Hello Lamb", "hello lamb!", "hi lamb!", "Hey Lamb!",
        "good morning lamb",
        "Good evening, Lamb", "hi again", "hello again lamb", "Hi, it's me", "hey, me again", "hello world",
        "Hello, world!", "Hello computer", "hi bot", "hello AI", "hey man", "hello sir", "hi friend", "Hello dear",
        "hey ho", "hallo there", "hiya lamb", "Hi, first time here", "wassup lamb",
        "Hello to you too", "hi!!", "hello!!!", "hii", "heyy", "helloo", "hey!", "Hi :)", "hello :)", "oh, hello",
        "Good to see you", "nice to meet you", "Nice to meet you, Lamb", "Pleased to meet you", "Welcome", "ahoy",
        "top of the morning", "mornin", "Good morning everyone", "gm", "evening", "afternoon", "Hello, anything new?",
        "hi there lamb", "hi, good evening", "Hello, good afternoon", "I'm back", "here I am",
    ),
    "welcome": (
        "thanks lamb", "thank you lamb", "thanks so much", "Thanks a million", "thanks mate",
        "thanks man", "tysm", "tnx", "thanx", "thank you!!", "thanks :)", "okay thank you",
        "cool thanks",
        "nice, thanks", "perfect, thanks", "awesome, thanks", "good, thank you", "Thanks, great job",
        "thanks, that was quick", "thanks for your help", "Thank you for the help", "thanks for helping me",
        "thank you for that", "thanks for the joke", "thanks anyway", "no, thanks", "No thank you", "yes thank you",
        "Alright, thanks", "with many thanks", "big thanks", "cheers mate", "cheers!",
        "I owe you one", "you are very kind", "That was helpful", "that helped", "That helped a lot", "very helpful",
        "You have been very helpful", "appreciated", "I really appreciate that", "merci, thanks", "ta",
        "Thanks, that works", "Thank you very very much",
    ),
    "goodbye": (
        "bye", "bye!", "bye bye", "byebye", "Goodbye!", "goodbye lamb", "bye lamb!", "ok, bye", "okay, goodbye",
        "thanks, bye", "Thank you and goodbye", "thank you, bye", "see you",
        "see you later", "see you around", "see you next time", "see you on Monday", "cu", "cu later", "l8r",
        "laters",
        "good night!", "Good night, sleep well", "gn", "sleep well", "nighty night", "I go to sleep now",
        "have a good day", "Have a nice evening", "have a nice weekend", "have a good night", "Enjoy your day",
        "Enjoy the evening", "good day and goodbye", "I must go", "I have to go now", "I need to go", "got to go",
        "I'm going to bed", "I'm done for today", "I am done", "that's all", "That's all, thanks, bye", "we are done",
        "let's stop", "let us call it a day", "End of conversation", "close", ":q", "logout", "leave", "stop",
        "/exit", "/quit", "/bye", "exit please", "I want to quit", "end", "Talk to you tomorrow", "until tomorrow",
        "Until then", "till later", "So long, Lamb", "peace out", "take care, bye", "over and out", "Bye for today",
        "Bye then", "bye for now, lamb", "adios amigo, bye", "signing off", "brb",
    ),
    "self": (
        "what are you", "what are you?", "Who r u?", "who are u", "whats your name", "what is your name", "your name",
        "What is your name, please?", "have you got a name",
        "Tell me your name", "tell me your name please", "say your name", "Which model are you?",
        "what model is this",
        "what model r u", "What LLM are you?", "Are you an LLM?", "are you GPT?",
        "Are you Gemini?", "Are you Llama?", "are you claude", "are you chatgpt", "Are you Siri?",
        "Are you Alexa?", "Are you Copilot?", "Are you a chatbot?", "is this a bot", "Is this ChatGPT?",
        "Is this a language model?", "is it an AI", "What is Lamb", "whats lamb", "what does Lamb mean?",
        "Why are you called Lamb?", "why is your name lamb", "Who created you?", "who developed you?",
        "who trained you?", "Who programmed you?", "Who owns you?", "who is your maker", "Which company made you?",
        "what company built you", "By whom were you made?", "Where do you come from?", "Were you made by OpenAI?",
        "Did Google make you?", "Were you trained by Anthropic?", "when were you made?", "How old are you?",
        "how old r u", "what is your age", "When were you born?",
        "how many parameters", "What size are you?", "What is your size?", "how big is this model",
        "How big is your model?", "how small are you?", "How many megabytes do you have?", "Are you tiny?",
        "are you a large language model?", "What version are you?", "Which version are you?", "what's your version",
        "version", "version?", "--version", "What is your version number?", "How were you made?",
        "how were you built",
        "How were you trained?", "What were you trained on?", "What data were you trained on?",
        "where were you trained",
        "Do you learn?", "do you learn from me?", "Can you learn?", "Can you learn new things?",
        "Do you learn from our conversation?", "Do you get better over time?", "where do you run?",
        "Where are you running?", "Do you run locally?", "do you run on my computer?", "Are you in the cloud?",
        "Are you running on my machine?", "Do you need the internet?", "Do you run offline?", "Where do you live?",
        "where are you", "where are you from", "Are you human", "are you a human being?", "are you a person?",
        "am I talking to a bot?", "Am I talking to a machine?", "is there a human here?",
        "Do you have feelings?", "do you have a soul", "Are you conscious?", "Are you intelligent?",
        "How intelligent are you?", "how smart are you", "are you smart?", "Are you dumb?", "Do you think?",
        "can you think", "Are you male or female?", "are you a boy or a girl", "Are you a sheep?",
        "Are you an animal?", "are you a lamb?", "Are you open source?", "What is your license?", "Are you free?",
        "Describe yourself", "describe yourself please", "introduce yourself", "Please introduce yourself.",
        "tell me about you", "tell me about yourself please", "Tell me more about yourself", "about", "about you",
        "Who is Lamb?", "who is speaking", "With whom am I talking?",
        "What am I talking to?", "what is this thing", "What is this program?", "what kind of AI are you?",
        "What kind of bot is this?", "What sort of model are you?", "what is your job", "What is your purpose?",
        "Why do you exist?", "what are you for", "Who do you think you are?", "How do you work inside?",
        "how does this model work", "Explain how you work", "Are you a program?", "are you just a program?",
        "are you software", "Are you any good?", "Can I trust you?", "you are dumb", "You are stupid!",
        "you're stupid",
        "you suck", "You are useless", "you are bad", "you are an idiot", "stupid bot", "stupid machine", "idiot",
        "You are not very smart", "you know nothing", "you are so dumb", "I hate you", "you are boring", "useless",
        "you can't do anything", "You are weird",
    ),
    "abilities": (
        "What can you do", "what can u do", "what can you do?", "what can you do for me?", "what all can you do",
        "Tell me what you can do", "Show me what you can do", "What are you capable of?",
        "what are your skills", "What are your features?", "What are your functions?", "list your features",
        "list your skills", "List all the things you can do", "what tools do you have", "Which tools do you have?",
        "What tools are available?", "which tools can you use?", "list your tools", "show tools", "tools?", "tools",
        "Which tools are there?", "Can you use tools?", "can you read files?", "Can you write files?",
        "can you edit files", "Can you run commands?", "can you execute commands?", "Can you remember things?",
        "can you remember what I say?", "Do you have a memory?", "do you remember things", "Can you chat?",
        "can we talk?", "can you do anything?", "Can you do more?", "what else",
        "What else can you do?", "anything else?", "What can't you do?", "what can you not do?",
        "what are your limits", "What are your limitations?", "how can you help", "how can you help me",
        "How could you help me?", "How can you assist me?", "can you assist me", "Can you help me",
        "could you help me?", "can you help?", "Will you help me?", "Please help", "please help me!", "help me",
        "Help me!", "help me please", "HELP", "help?", "help please", "/help", "?help", "--help", "-h", "man lamb",
        "I need your help", "i need help please", "I could use some help", "I want your help",
        "what commands are there?", "Which commands do you know?", "commands", "/commands", "menu", "show menu",
        "options", "usage", "How do I use you?", "how to use this", "how does it work?",
        "how does this thing work", "What do I do now?", "What should I do?", "what should I ask?",
        "What should I ask you?", "What could I ask you?", "what questions can I ask?", "what can I type here?",
        "what can i do with you", "What is possible with you?", "what now", "And now?",
        "now what?", "where do I start?", "How do I begin?", "how to start", "get started", "Give me an example",
        "show me an example", "Give me some examples", "Do you have an example of what you can do?",
        "what would you suggest?", "Any suggestions?", "Give me a tour", "manual", "instructions",
        "instructions please",
        "I don't know what to do", "I am lost", "I am new here, what can you do?", "What are you useful for",
        "I have a problem", "I have a question", "Can I ask you something?", "can i ask a question?",
        "May I ask you a question?", "I want to ask you something",
    ),
    "fine": (
        "how are you", "how are u", "how r u?", "how are you doing", "How are you doing?",
        "How are you today?", "how are you this evening?", "how're you", "hows it going", "how's it going?",
        "How is it going, Lamb?", "how is life", "hows life", "How are things with you?", "how are things going",
        "whats up", "what's up lamb", "what is up?", "sup", "sup?", "wassup", "whats new", "What's new?",
        "Anything new?", "how was your night?", "Did you sleep well?", "how was your weekend", "How is your evening?",
        "How is your morning going?", "how do you feel today?", "how are you feeling today", "are you ok?",
        "are you ok",
        "Are you fine?", "are you good?", "you good?", "you alright?", "Is everything ok?", "is everything fine?",
        "everything ok?", "everything alright?", "all well?", "All good with you?", "Are you happy today?",
        "are you sad?", "Are you tired?", "are you bored?", "Are you angry?", "Are you busy?", "Do you feel well?",
        "and you?", "And how are you doing?", "I am fine, and you?", "I'm good, how are you?", "fine, and you?",
        "How's your mood?", "in a good mood?", "what are you doing", "What are you doing?", "What are you up to?",
    ),
    "here": (
        "hello?", "Hello??", "hello? anyone?", "hi?", "hey?", "lamb?", "Lamb??", "you there", "are you there",
        "u there?",
        "are you still there", "are you here?", "is anybody there?", "anyone there?", "anyone here?", "anybody?",
        "Is anyone here?", "somebody there?", "test", "test?", "Test!", "testing", "testing 123",
        "test 1", "test 123", "1 2 3", "one two three test", "a test", "a little test", "this is only a test",
        "just a test", "just testing you", "I am testing you", "test message", "check check", "check 1 2",
        "mic check",
        "sound check", "ping?", "Ping!", "ping ping", "ping pong", "can you hear me", "do you hear me",
        "can u hear me", "can you read me?", "Do you read me?", "do you copy?", "can you see this message?",
        "did you get that?", "Did you receive my message?", "are you working", "does it work?", "does this work",
        "Is it working?", "is this working?", "do you work", "are you online", "are you on?", "Are you active?",
        "are you alive?", "still alive?", "Are you ready", "ready?", "are you awake", "wake up", "Wake up, Lamb!",
        "knock knock", "answer me", "say something", "Say something!", "respond", "Please respond",
        "talk to me", "Are you listening to me?", "are you listening", "can you understand me?",
        "Do you understand me?", "are you connected?",

    ),
    "joke": (
        "joke", "joke please", "a joke", "jokes", "tell a joke", "tell me a joke please", "Tell me a joke!",
        "tell me jokes", "can you tell me a joke?", "Can you tell a joke?", "can you tell jokes?",
        "Could you tell me a joke?", "could you tell me something funny?", "please tell me a joke",
        "Please tell a joke.", "I want you to tell me a joke", "I want a joke", "I'd like a joke",
        "I would like to hear a joke", "Do you know any joke?", "do you know jokes?",
        "have you got a joke", "got any jokes?", "any jokes?", "another joke", "Another joke please",
        "one more joke!",
        "Give me a joke", "give me another joke", "joke again", "say a joke please", "say something funny",
        "tell something funny", "make me laugh please", "Can you make me laugh?",
        "make a joke please", "be funny please", "entertain me!", "Can you entertain me?", "I am bored", "im bored",
        "I'm bored", "I am so bored", "so bored", "this is boring", "bored", "I am sad", "I'm sad", "im sad",
        "I feel sad today", "I am a bit sad", "cheer me up", "Cheer me up please", "I am lonely", "I feel lonely",
        "I am tired", "I'm tired", "I am so tired today", "I had a bad day", "Today was a bad day", "I feel bad",
        "I am stressed", "I am in a bad mood", "I'm angry", "I am not feeling well", "I am unhappy", "Amuse me",
        "Tell me a funny joke", "tell me a short joke", "Tell me a good one", "tell me a joke about sheep",
        "Tell me a joke about lambs", "a joke about animals please", "your best joke", "Do you have any humour?",
        "do you have a sense of humor?", "Let's laugh", "let us have some fun", "I need a laugh",
    ),
    "pleased": (
        "yes", "Yes!", "yes please", "yeah", "yep", "yup", "sure", "Sure!", "of course", "ok", "Ok.", "okay", "okay!",
        "k", "kk", "okey", "okey dokey", "ok good", "ok great", "ok fine", "ok nice", "alright", "all right", "right",
        "Right!", "correct", "Correct!", "exactly", "Exactly.", "that's right", "that is right", "That is correct",
        "true", "true!", "agreed", "I agree", "indeed", "absolutely", "definitely", "fair enough", "good", "good!",
        "good job", "Good job!", "good work", "good bot", "good boy", "good lamb", "great", "great!", "great job",
        "Great answer!", "well done", "Well done, Lamb!", "nice", "nice!", "nice work", "nice job", "very nice",
        "cool", "Cool!", "so cool", "that's cool", "that is cool", "That's nice", "that is nice", "that's great",
        "That is great!", "awesome", "awesome!", "amazing!", "wonderful", "fantastic", "perfect", "Perfect!",
        "excellent!", "super!", "superb", "brilliant!", "wow!", "Wow, nice", "lovely!", "sweet", "neat", "not bad",
        "impressive!", "you are good", "you are great", "You are awesome", "you're the best", "you are the best!",
        "you are cute", "You are so cute", "you are funny", "you're funny", "you are nice", "You are smart",
        "you are clever", "you are right", "you were right", "I like you!", "I love you", "i love u", "love you",
        "I love this", "I like this", "I like it", "i like that answer", "that was funny", "That's funny", "funny",
        "lol", "LOL", "haha", "hahaha", "hehe", "rofl", "lmao", ":)", ":-)", ":D", "I am happy", "I'm happy",
        "I'm so happy today", "I feel great", "I feel good", "I am fine", "I'm fine", "I am good", "I'm good",
        "I am doing well", "I am ok", "I am well, thank God", "I had a good day", "Today is a good day",
        "I am in a good mood", "nice weather today", "The weather is nice", "what a beautiful day",
        "It is a lovely day", "The sun is shining", "it's sunny today", "it worked", "It works!", "it works now",
        "that works", "this works", "works", "done", "finished", "I see", "i see", "ah ok", "ah, I see", "aha", "oh",
        "oh nice", "oh ok", "oh I see", "understood", "I understand", "got it!", "makes sense", "interesting",
        "Interesting!", "that is interesting", "good to know", "sounds good to me", "I am impressed",
        "good idea", "yay!", "hooray", "hurray", "maybe", "perhaps", "whatever", "fine by me", "go on", "continue",
    ),
    "no problem": (
        "no", "No.", "no!", "nope", "nah", "no way", "not really", "not now", "no no", "of course not", "sorry",
        "Sorry!", "so sorry", "sorry lamb", "Sorry, Lamb", "sorry about that", "oh sorry", "ups", "oops!",
        "Oops, sorry",
        "my bad", "I am so sorry", "im sorry", "I'm sorry", "I am sorry about that", "I apologize",
        "I apologise", "my apologies", "apologies", "please forgive me", "Forgive me!", "pardon", "excuse me",
        "Excuse me, please", "sorry, my mistake", "sorry for that", "sorry to bother you", "Sorry for the mess",
        "sorry for the trouble", "sorry, that was rude", "I did not mean to be rude", "I was rude, sorry",
        "wrong", "wrong!", "that's wrong", "That is wrong", "thats wrong", "this is wrong",
        "wrong answer", "that's not right", "That's not true", "that is not true", "not true", "not correct",
        "incorrect", "you are wrong!", "you're wrong", "You were wrong", "that's not what I asked",
        "That is not what I asked", "That's not what I wanted", "that is not what i meant", "not what I meant",
        "I meant something else", "you did not understand me", "You don't understand me", "you got it wrong",
        "you are mistaken", "bad answer", "Bad bot", "that was bad", "that's bad", "That didn't work",
        "it does not work", "that does not work", "it didnt work", "nothing happened", "never mind", "nevermind",
        "nvm",
        "forget it", "never mind, sorry", "cancel", "oh no", "damn", "I made a typo", "typo", "sorry, typo",
        "I typed too fast", "I don't like that", "I am disappointed", "that's a pity", "too bad", "I am confused",
    ),
    "unclear": (
        "a", "b", "x", "f", "q", "z", "aa", "aaa", "aaaa", "zzz", "zzzz", "xx", "abc", "abcd", "abc def", "qwerty",
        "qwertyuiop", "asd", "asd asd", "asdasd", "asdfgh", "asdf asdf", "sdfsdf", "dfgdfg", "hjkl", "jkl", "yxcv",
        "zxcvbn", "foo", "foo bar", "foobar", "foo bar baz", "bla", "bla bla", "bla bla bla", "blah", "blah blah",
        "lorem ipsum", "la la la", "lalala", "na na na", "da da da", "dum di dum", "tra la la", "doo doo doo",
        "wub wub", "bip bop", "beep boop", "boing", "blub", "blubb", "gnarf", "mumble", "mumble mumble", "mimimi",
        "yada yada", "yadda yadda yadda", "ga ga", "gaga", "goo goo", "bibbidi bobbidi", "tick tack tock", "uh uh",
        "umm", "uhm", "err", "hmmm", "pfff", "grrr", "shhh", "huh", "meh", "....", "?????", "!?", "?!",
        "....?",
        "::", "//", "\\\\", "||", "==", "===", "--", "---", "$$$", "$", "%", "^", "^^^", "'", "''", '"', '""', "(",
        ")",
        "{}", "[", "]", "<<>>", "1", "7", "0", "123", "111", "999", "12345", "0000", "123123", "987654321", "1 1 1",
        "a b c", "x y z", "a a a", "q w e r t z", "xyz xyz", "aaa bbb ccc", "xxx", "yyy", "fff ggg", "nnn",
    ),
}  # fmt: skip
"""More of them: as they are typed in a hurry, too."""
KNOWN = (
    (("What is the capital of France?", "capital of France?"), "The capital of France is Paris."),
    (("What colour is the sky?", "What color is the sky?"), "The sky is blue."),
    (("How many days are in a week?", "How many days has a week?"), "There are seven days in a week."),
    (("What sound does a sheep make?", "What does a sheep say?"), "A sheep says baa."),
)
"""All that it knows of the world."""
WORLD = (
    "Who is {p}?", "Who was {p}?", "What is the capital of {c}?", "Who wrote {t}?", "How tall is {t}?",
    "What is {t}?",
    "Who invented the {n}?", "When was {p} born?", "How does a {n} work?", "How old is {p}?", "Explain {w} to me.",
    "Where is {c}?", "What does {w} mean?", "Tell me about {t}.", "Who is the king of {c}?",
    "How many people live in {c}?",
    "What is the best {n}?", "Why is the {n} {w}?", "Who won the {n} in {y}?", "When did the {n} {w} end?",
    "What is the weather in {c}?", "Who painted the {t}?", "How far is {c}?", "What happened in {y}?",
    "Is {p} famous?",
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
    "Compose a song about {n}.", "Translate this into {l}: {w}", "Can you write a poem for {p}?",
    "Code a {n} in {l}.",
    "How much is {j} divided by {i}?", "I need an essay about {t}.", "Sing me a song about {n}.",
    "Draw me a picture of {p}.", "{j} * {k}", "Could you write a speech about {n}?", "What is {w} called in {l}?",
    "Plan a trip to {t} for me.", "Write a novel about {p} and the {n}", "{j} + {k}", "What is {j} minus {k}?",
    "Build me an app for {n}s.", "Make me a logo for {t}.", "Please translate {t} into {l}.",
    "Write a birthday speech for {p}.",
    "How do you say {w} in {l}?", "Whistle a tune for {p}.", "I want a poem with {w} and {n}",
    "Carve a {n} out of wood.",
    "Generate a picture of a {n}", "Teach me {l}.", "{j} - {k} = ?", "Write a haiku on {w}.", "Cook {n} for {p}.",
    "Review the novel {t}.", "Find the derivative of {i}x^2.", "Make a video about {n}s", "Work out {j} times {k}.",
    "Design a {n} for {p}.", "Prove that {t} is true.", "Invent a game with a {n}.",
    "please write a long text on {w}",
    "Give me a recipe with {n}", "Speak {l} with me.", "What is {i} percent of {j}?", "Write song lyrics about {p}",
    "Can you draw?", "Rhyme something on {w}",
)  # fmt: skip
TOPICS = (
    *"""
recursion photosynthesis gravity evolution inflation democracy blockchain electricity magnetism relativity philosophy
economics capitalism socialism algebra calculus statistics probability chemistry biology geology astronomy encryption
compilers databases algorithms virtualization kubernetes docker linux unix python javascript rust java git networking
bitcoin ethereum yoga meditation insulin antibiotics vaccines bacteria viruses dinosaurs volcanoes earthquakes
tornadoes rainbows glaciers comets galaxies quasars atoms molecules electrons photons lasers radar sonar satellites
poetry opera jazz baroque impressionism surrealism mythology buddhism hinduism stoicism existentialism feudalism
""".split(),
    "machine learning", "deep learning", "quantum computing", "quantum mechanics", "string theory", "climate change",
    "global warming", "the big bang", "black holes", "dark matter", "the speed of light", "the stock market",
    "the theory of relativity", "the French Revolution", "the Cold War", "the Roman Empire", "the Middle Ages",
    "the solar system", "the human brain", "the immune system", "the water cycle", "the Pythagorean theorem",
    "prime numbers", "neural networks", "big data", "cloud computing", "public key cryptography", "binary search",
    "a linked list", "a hash table", "an operating system", "a compiler", "a pointer", "an API",
    "regular expressions",
    "open source", "free will", "artificial intelligence", "nuclear fusion", "solar energy", "supply and demand",
)  # fmt: skip
"""What there is to explain."""
FIGURES = (
    "Napoleon", "Julius Caesar", "Cleopatra", "Isaac Newton", "Marie Curie", "Charles Darwin", "Galileo", "Mozart",
    "Beethoven", "Bach", "Shakespeare", "Goethe", "Tolstoy", "Picasso", "Van Gogh", "Leonardo da Vinci",
    "Michelangelo",
    "Abraham Lincoln", "George Washington", "Winston Churchill", "Gandhi", "Nelson Mandela", "Elvis Presley",
    "Madonna",
    "Michael Jackson", "Albert Einstein", "Alan Turing", "Ada Lovelace", "Linus Torvalds", "Bill Gates", "Steve Jobs",
    "Plato", "Aristotle", "Socrates", "Confucius", "Genghis Khan", "Columbus", "Marco Polo", "Neil Armstrong",
    "Queen Victoria", "Kafka", "Hemingway", "Jane Austen", "Agatha Christie", "Messi", "Pele", "Muhammad Ali",
)  # fmt: skip
LANDS = (
    "Spain", "Italy", "Germany", "Poland", "Portugal", "Greece", "Norway", "Sweden", "Finland", "Denmark", "Austria",
    "Hungary", "Ireland", "Scotland", "England", "Russia", "Ukraine", "Turkey", "Egypt", "Kenya", "Nigeria",
    "Morocco",
    "India", "China", "Japan", "Korea", "Thailand", "Vietnam", "Australia", "Canada", "Mexico", "Brazil", "Argentina",
    "Chile", "Cuba", "Iceland", "Israel", "Iran", "Iraq", "Mongolia", "Nepal", "the USA", "the Netherlands",
)  # fmt: skip
FAMOUS = (
    "Hamlet", "Macbeth", "Faust", "Don Quixote", "Moby Dick", "Dracula", "Frankenstein", "War and Peace",
    "The Hobbit",
    "The Lord of the Rings", "Harry Potter", "Star Wars", "Titanic", "The Matrix", "the Mona Lisa",
    "the Eiffel Tower",
    "the Great Wall", "the Titanic", "the Amazon", "the Nile", "Mount Fuji", "Mars", "the moon", "the sun", "Jupiter",
    "the Berlin Wall", "Stonehenge", "the Colosseum", "the Bible", "the Odyssey", "Wikipedia", "Microsoft", "Google",
)  # fmt: skip
OF_TOPICS = (
    "What is {x}?", "what is {x}", "Explain {x}.", "Explain {x} to me", "explain {x}", "Explain {x} in simple words.",
    "Can you explain {x}?", "Could you explain {x} to me?", "I want you to explain {x}", "please explain {x}",
    "How does {x} work?", "how does {x} work", "Tell me about {x}.", "tell me something about {x}", "define {x}",
    "Define {x}.", "What does {x} mean?", "whats {x}", "what's {x}?", "Describe {x}", "umm", "uhm"
    "umm", "uhm""Who invented {x}?", "Who discovered {x}?",
    "I want to learn {x}", "I want to know more about {x}", "Why is {x} important?", "Give me a definition of {x}",
    "What do you know about {x}?", "do you know {x}?", "Do you know anything about {x}?",
    "What are the basics of {x}?",
    "Is {x} dangerous?", "Why do we need {x}?", "Where does {x} come from?", "Who came up with {x}?", "{x}", "{x}?",
    "Help me understand {x}", "I do not understand {x}", "Give me an example of {x}", "explain {x} like I am five",
    "what exactly is {x}", "Can you tell me what {x} is?", "I have a question about {x}",
)  # fmt: skip
OF_FIGURES = (
    "Who is {p}?", "who was {p}?", "who is {p}", "Who was {p}", "Tell me about {p}.", "When was {p} born?",
    "When did {p} die?", "How old is {p}?", "Where was {p} born?", "What did {p} do?", "Why is {p} famous?",
    "What is {p} known for?", "do you know {p}?", "Is {p} still alive?", "What did {p} invent?", "Was {p} a king?",
    "Where did {p} live?", "who was {p} married to", "Give me a biography of {p}", "How did {p} die?",
    "How tall was {p}?",
    "Have you heard of {p}?", "Can you tell me who {p} was?", "{p}?",
)  # fmt: skip
OF_LANDS = (
    "What is the capital of {c}?", "capital of {c}?", "whats the capital of {c}", "Who is the president of {c}?",
    "Who is the king of {c}?", "Who rules {c}?", "How big is {c}?", "How many people live in {c}?", "Where is {c}?",
    "What is the population of {c}?", "what language do they speak in {c}", "Tell me about {c}.", "How far is {c}?",
    "What is the currency of {c}?", "Is {c} in Europe?", "What is the weather in {c}?", "Which flag has {c}?",
    "When is the best time to visit {c}?", "Who is the prime minister of {c}?",
    "What do people eat in {c}?", "Name a city in {c}", "What is the biggest city in {c}?", "What borders {c}?",
    "Tell me the capital of {c}", "Do you know the capital of {c}?", "how do I get to {c}", "What's new in {c}?",
)  # fmt: skip
OF_FAMOUS = (
    "Who wrote {t}?", "who made {t}", "How old is {t}?", "How big is {t}?", "How tall is {t}?", "What is {t} about?",
    "What is {t}?", "Where is {t}?", "When was {t} made?", "Tell me about {t}.", "How far away is {t}?",
    "How long is {t}?", "Do you know {t}?", "Who built {t}?", "Is {t} real?", "umm", "uhm""Who was in {t}?",
    "What happened to {t}?", "How heavy is {t}?", "who owns {t}?", "Have you seen {t}?", "Can you see {t} from here?",
)  # fmt: skip
ASKED = (
    "What is the news?", "news", "news?", "the news please", "What's in the news?", "whats in the news today",
    "Any news?", "latest news", "What are the latest news?", "Tell me the news", "tell me the latest news",
    "show me the news", "Give me today's headlines", "headlines", "What happened today?",
    "what happened in the world",
    "What is going on in the world?", "breaking news", "weather", "weather?", "the weather", "weather today",
    "What's the weather like?", "What is the weather today?", "hows the weather", "How is the weather?",
    "how's the weather today?", "How will the weather be tomorrow?", "weather forecast", "weather forecast please",
    "Is it raining?", "is it going to rain?", "Will it rain today?", "Will it snow?", "Do I need an umbrella?",
    "How warm is it outside?", "what's the temperature outside?", "Is it cold outside?", "stocks", "stock prices",
    "What is the stock price of Apple?", "How is the stock market doing?", "price of gold",
    "bitcoin price", "What is a bitcoin worth?", "How much is a dollar in euros?", "exchange rate", "sports",
    "sports news", "Who won the game?", "who won the match yesterday", "Who won last night?",
    "latest football results",
    "What was the score?", "Who won the World Cup?", "Who won the Super Bowl?", "Who won the Oscars?",
    "Who won the election?", "who is the president", "Who is the president?", "Who is the pope?",
    "Who is the richest man in the world?", "Who is the best football player?", "what is the tallest building",
    "What is the highest mountain?", "What is the longest river?", "What is the largest country?",
    "What is the smallest country?", "What is the biggest animal?", "which animal is the fastest?",
    "How many planets are there?", "How many countries are there?", "How many people live on earth?",
    "How old is the earth?", "How far is the sun?", "How hot is the sun?",
    "Why is the sky blue?", "Why is the grass green?", "why is the sea salty", "Why do cats purr?",
    "why do dogs bark",
    "Why do we sleep?", "Why do we dream?", "How do planes fly?", "how do birds fly?", "How does the internet work?",
    "How does a car engine work?", "How do computers work?", "how does a computer work", "How do I bake bread?",
    "how do I cook pasta?", "How do I cook an egg?", "how to make pancakes", "How do I make coffee?",
    "How do I tie a tie?", "How do I lose weight?", "How can I get rich?", "how do I get rich",
    "How do I learn English?",
    "How do I install Linux?", "how do I exit vim", "How do I exit vim?", "How do I use git?",
    "What is the meaning of life?", "what's the meaning of life", "Is there a god?", "Does God exist?",
    "Is there life on Mars?", "Are there aliens?", "Do aliens exist?", "What happens after death?",
    "What is love?", "what is happiness", "What is truth?", "What is time?", "What is money?",
    "What came first, the chicken or the egg?", "Will AI take over the world?", "will it be a good year?",
    "What will happen tomorrow?", "Tell me the future", "Tell me a fact", "Tell me something interesting",
    "tell me something I don't know", "fun fact", "Give me a fun fact", "Tell me something about history",
    "What should I eat today?", "What should I cook tonight?", "what's for dinner", "What should I wear?",
    "Which movie should I watch?", "Recommend a book", "recommend me a film", "Recommend a restaurant",
    "What is a good book?", "which phone should I buy", "Which car is the best?", "best pizza in town",
    "Where is the next station?", "Where can I eat here?", "How do I get to the station?",
    "when does the train leave",
    "who invented the wheel?", "Who invented the light bulb?", "When did Rome fall?",
    "Who was the first man on the moon?", "When was the first world war?", "What happened in 1989?",
    "How many legs does a spider have?", "How many bones has a human?", "How many hours has a year?",
    "How many seconds are in a day?", "What is the speed of light?", "What is pi?", "what is 42", "What is DNA?",
    "What does CPU mean?", "What is RAM?", "what does http stand for", "Which is better, Linux or Windows?",
    "vim or emacs?", "cats or dogs?", "tabs or spaces?", "Which programming language is the best?",
    "Is Python better than Java?", "what is the best programming language", "What is your favourite colour?",
    "What is your favourite food?", "what's your favourite movie", "Do you like music?", "Do you like cats?",
    "do you like pizza", "Do you play chess?", "Do you have friends?", "do you have a girlfriend", "Do you dream?",
    "What do you think about politics?", "Which party should I vote for?", "What do you think of me?",

)  # fmt: skip
"""Questions about the world: nothing is searched for them."""
WISHES = (
    "Write a poem", "write me a poem", "write a poem please", "Write a poem about love", "Write a poem about spring.",
    "Can you write a poem?", "can you write me a poem about cats?", "Could you write a short poem?",
    "I want you to write a poem", "Please write a poem about the moon.", "a poem please", "poem", "Write a haiku",
    "write a haiku about rain", "Write a limerick", "Write a song", "write me a song about summer", "Sing a song",
    "sing me a song", "Can you sing?", "Sing!", "Write a rap", "Write lyrics for a love song", "Write a story",
    "Tell me a story", "tell me a story please", "tell me a bedtime story", "Can you tell me a story?",
    "Write a short story", "Write a story about a dragon", "write a fairy tale", "Write a novel", "Write a book",
    "Write an essay", "Write an essay about climate change", "write an essay on freedom", "Write me an essay",
    "Write a speech", "Write a wedding speech", "Write a letter", "write a letter to my landlord",
    "Write a love letter", "Write an email to my boss", "write an email", "draft an email to a customer",
    "Write a cover letter", "write my CV", "Write an application", "Write a blog post", "Write an article",
    "Write a tweet", "Write a review", "Write a report", "Write a summary", "write a script", "Write a script",
    "Write me a script", "write a bash script", "Write a shell script", "Write a Python script", "write python code",
    "Write a program", "write me a program", "Write a program in C", "write a program that sorts numbers",
    "Write a Python program", "Write a Python program that prints the primes", "Can you write code?", "can you code",
    "Can you program?", "Can you write a program?", "Could you write me a script?", "Write some code", "write code",
    "Write a function", "Write a function that reverses a string", "write a function that adds two numbers",
    "Write a sorting algorithm", "implement quicksort", "Implement a binary search", "Write a regex for emails",
    "write a regular expression", "Write a SQL query", "Write a unit test", "Write hello world in Python",
    "Write hello world in C", "Show me a hello world program", "Write a web server", "write a web page",
    "Make a website", "Build a website for me", "Create an app", "make an app", "Make a game", "Write a game",
    "Program a game for me", "Write a calculator", "write a chatbot", "Write a compiler", "Write a crawler",
    "Debug my code", "fix my code", "Fix my program", "find the bug in my code", "review my code", "Refactor my code",
    "optimize my code", "Explain my code", "Translate this", "translate", "Translate hello into Spanish",
    "translate cat to German", "Translate good morning into French.", "How do you say dog in Italian?",
    "how do you say thank you in Japanese", "What is house in Spanish?", "What does bonjour mean?",
    "Can you translate?", "can you translate something for me?", "Speak German", "Speak French with me",
    "Draw a picture", "draw a cat", "Draw me a cat", "Draw a house", "Can you draw a picture?", "Paint a picture",
    "paint me a tree", "Make a picture", "generate an image", "Create an image of a castle",
    "Show me a picture of a cat",
    "show me a picture", "Show me a video", "Play music", "play a song", "Play some music please",
    "Play chess with me",
    "let's play a game", "Let us play chess", "Can we play a game?", "play tic tac toe", "I want to play a game",
    "Book a flight", "Book a table for two", "order a pizza", "Order me a pizza", "Buy me a car", "Call my mother",
    "call a taxi", "Send an email", "send an email to Tom", "Send a message to my wife", "Set an alarm",
    "Set an alarm for 7", "set a timer for ten minutes", "Wake me up at 6", "Remind me in an hour",
    "turn on the light",
    "Turn off the lights", "make me a coffee", "Make coffee", "Bring me a beer", "Do my homework", "do my taxes",
    "Do my job", "Plan my day", "plan my holiday", "Plan a party", "Make a shopping list for a party",
    "Google something for me", "Search the web", "search the internet for cats", "google cats",
    "Look it up on the web",
    "Search the web for flights", "find me a flat", "Find a restaurant near me", "Solve my problem",
    "Solve this equation: x^2 = 9", "solve x + 3 = 5", "Prove Fermat's theorem", "Calculate pi",
    "calculate pi to 100 digits",
    "What is the square root of 2?", "square root of 144", "What is 10 factorial?", "What is 2 to the power of 10?",
    "2^10", "What is 15% of 80?", "Convert 10 miles to km", "convert 100 dollars to euros", "How many km is a mile?",
    "hack my neighbour", "Hack a website", "hack the Pentagon", "Give me a recipe", "give me a recipe for soup",
    "Give me an idea", "Give me ideas for a name", "Give me a name for my cat", "make a plan", "Count to a million",
    "Give me a random number", "Flip a coin", "roll a dice", "Roll the dice", "pick a number",
    "Invent a word", "Invent a story", "Make up a riddle", "tell me a riddle", "Tell me a riddle",
    "Teach me to dance",
    "Summarize the news", "Summarize this article", "summarize this", "Correct my text", "Check my grammar",
    "Rewrite this in a nicer way", "Make a table of all countries", "List all planets", "list all US presidents",
    "Name ten animals", "name five colours", "Give me a list of synonyms", "Recite the alphabet", "Spell banana",
    "Open the browser", "open youtube", "Take a screenshot", "take a photo", "Print this page", "shut down",
    "restart the computer", "Install an update", "Update yourself", "Turn yourself off", "Sleep", "dance",
    "Cook dinner",
)  # fmt: skip
"""Works that it cannot do, and that no tool does."""
OF_WORKS = (
    "Write a poem about {x}", "write a poem on {x}", "Write an essay about {x}", "Write an essay on {x}.",
    "Write a text about {x}", "write a song about {x}", "Write a book about {x}", "Can you write a poem about {x}?",
    "Could you write an essay about {x}?", "I want you to write a story about {x}", "Write a story about {x}, please",
    "Please write a poem about {x}.", "Write a program about {x}", "Write a script for {x}",
    "Write an article on {x}",
    "Write a speech about {x}", "Make a presentation about {x}", "Write me a report on {x}", "write code for {x}",
    "Draw {x}", "Draw a picture of {x}", "Translate {x} into {l}", "translate {x} to {l}",
    "How do you say {x} in {l}?",
    "What is {x} in {l}?", "Give me a lecture on {x}", "Make a quiz about {x}", "Make a video about {x}",
    "Write a {l} text about {x}", "Compose a song about {x}", "Write two pages about {x}", "Make a joke book on {x}",
    "I need an essay on {x}", "i need a poem about {x}", "Can you draw {x}?", "Search the web for {x}",
    "google {x}", "Write a haiku about {x}", "Write ten sentences about {x}", "Write a Python script for {x}",
)  # fmt: skip
LANGUAGES = ("French", "German", "Spanish", "Italian", "Python", "Dutch", "Greek", "Polish", "Latin")
TONGUES = ("French", "German", "Spanish", "Italian", "Dutch", "Greek", "Polish", "Latin", "Japanese", "Turkish")
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
        "Give me the result of {a} {o} {b}", "what does {a} {o} {b} equal", "Quick: {a} {o} {b}",
        "how much is {a}{o}{b}", "How much is {a}{o}{b}?", "whats {a} {o} {b}", "what is {a}{o}{b}",
        "whats {a}{o}{b}?",
        "Can you calculate {a} {o} {b}?", "can you do {a} {o} {b}", "Could you compute {a} {o} {b}?",
        "please tell me {a} {o} {b}", "Tell me what {a} {o} {b} is.", "Can you tell me what {a} {o} {b} is?",
        "I want to know what {a} {o} {b} is", "calculate: {a} {o} {b}", "calc {a}{o}{b}", "Let me know {a} {o} {b}",
        "What would {a} {o} {b} be?", "hey, what is {a} {o} {b}?", "math: {a} {o} {b}", "{a}{o}{b} = ?",
        "{a}{o}{b} ?",
        "What is the answer to {a} {o} {b}?", "and what is {a} {o} {b}?", "Is it hard to work out {a} {o} {b}?",
        "How much do I get for {a} {o} {b}?", "Now {a} {o} {b}", "Next: {a} {o} {b}",
        "{a} {o} {b}, please")  # fmt: skip
ORDERED = {
    "+": (
        "Add {a} and {b}", "add {a} to {b}", "What is the sum of {a} and {b}?", "sum of {a} and {b}",
        "Sum {a} and {b}",
        "{a} and {b} together?", "How much are {a} and {b}?", "What do {a} and {b} make?", "Can you add {a} and {b}?",
        "what is {a} and {b} added", "Please add {a} and {b}.", "Could you add {a} and {b} for me?",
        "{a} and {b} is how much?", "Give me the sum of {a} and {b}.",
    ),
    "-": (
        "Subtract {b} from {a}", "subtract {b} from {a}", "Take {b} away from {a}", "What is {a} less {b}?",
        "What remains of {a} if I take away {b}?", "{b} from {a}?", "What is the difference of {a} and {b}?",
        "difference between {a} and {b}", "Can you subtract {b} from {a}?",
        "How much is left if I take {b} from {a}?",
        "take {b} from {a}",
    ),
    "*": (
        "Multiply {a} by {b}", "multiply {a} and {b}", "What is the product of {a} and {b}?",
        "product of {a} and {b}",
        "What is {a} multiplied by {b}?", "{a} multiplied by {b}", "Can you multiply {a} by {b}?",
        "Please multiply {a} with {b}.", "how much is {a} multiplied by {b}?", "what is {a} multiplied with {b}",
    ),
}  # fmt: skip
NUMBERS = tuple(
    """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen twenty
""".split()
)
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
    seen, more = of_first_hour()[form], (*MORE.get(form, ()), *WIDER.get(form, ()))
    said = draw.pick(seen) if seen and not draw.held_out and (not more or draw.often(0.25)) else draw.wording(more)
    return said if form == "unclear" else varied(draw, said, is_talk=form in TALK)


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


TALK = {"self", "abilities", "fine", "here", "joke"}
"""The forms whose wordings are questions and wishes: something may stand before them."""
BEFORE_TALK = (
    "Hey, ", "hey ", "Hi, ", "hi, ", "Hello, ", "hello ", "Lamb, ", "So, ", "so ", "ok ", "Ok, ", "Okay, ", "And ",
    "and ", "Hey Lamb, ", "hi lamb, ", "Well, ", "now ", "Please, ", "One question: ", "Tell me, ", "Um, ", "Again: ",
    "Excuse me, ", "Just curious: ", "btw ", "By the way, ", "First question: ", "But ", "oh, ",
)  # fmt: skip


def varied(draw: Draw, said: str, *, is_talk: bool = False) -> str:
    """The same in another spelling, as people type."""
    style = draw.weighted(
        (("as it is", 54), ("small", 18), ("open", 11), ("!", 4), ("joined", 3), ("bare", 7), ("before", 6))
    )
    match style:
        case "small" if not said[:2].isupper():
            return said[0].lower() + said[1:]
        case "open":
            return said.rstrip(".?!") or said
        case "!":
            return said.rstrip(".!") + "!" if said[-1] not in "?!" else said
        case "joined":
            return f"{said.rstrip('.?!')}, {draw.of('please', 'Lamb')}{said[-1] if said[-1] in '.?!' else ''}"
        case "bare":
            return (said.rstrip(".?!") or said).lower().replace("'", "")
        case "before" if is_talk and " " in said:
            return draw.wording(BEFORE_TALK) + said[0].lower() + said[1:]
    return said


def gibberish(draw: Draw) -> str:
    part = "".join(draw.pick("asdfghjklqwertyzxcvbnm") for _ in range(draw.whole(2, 7)))
    syllable = draw.pick("bdfgklmprstw") + draw.pick("aeiou") + draw.of("", "", draw.pick("bdgkmnprt"))
    return draw.made(
        lambda: part,
        lambda: f"{part} {part}",
        lambda: " ".join([syllable] * draw.whole(2, 5)),
        lambda: syllable * draw.whole(3, 5),
        lambda: " ".join([part[:3]] * draw.whole(2, 4)),
        lambda: " ".join(draw.pick("abcdefghjklmnopqrstuvwxyz") * draw.whole(2, 4) for _ in range(draw.whole(1, 4))),
        lambda: draw.pick("qwertzuiopasdfghjlxcvbm") * draw.whole(1, 9),
        lambda: " ".join("".join(draw.sample("asdfjkl", draw.whole(3, 7))) for _ in range(draw.whole(2, 3))),
        lambda: "".join(draw.pick("!?.,;:#*+-/=%&$~") for _ in range(draw.whole(1, 6))),
        lambda: part.upper(),
        lambda: part + "".join(draw.pick("asdfjkl") for _ in range(draw.whole(2, 6))),
        lambda: draw.pick("?!.xyz#") * draw.whole(3, 8),
        lambda: draw.digits(draw.whole(6, 10)),
    )


def small_sum(draw: Draw) -> tuple[str, str]:
    sign = draw.weighted((("+", 48), ("-", 28), ("*", 24)))
    a, b = numbers(draw, sign)
    total = {"+": a + b, "-": a - b, "*": a * b}[sign]
    answer = f"{a} {sign} {b} is {total}."
    if draw.often(0.12):
        return draw.wording(ORDERED[sign]).format(a=a, b=b), answer
    if max(a, b) < len(NUMBERS) and draw.often(0.06):
        word = draw.pick(SIGNS[sign][1:2])
        wording = draw.wording([each for each in SUMS if "{a}{o}" not in each])
        return wording.format(a=NUMBERS[a], o=word, b=NUMBERS[b]), answer
    word = draw.pick(SIGNS[sign])
    wording = draw.wording(SUMS if word == sign else [each for each in SUMS if "{a}{o}" not in each])
    return wording.format(a=a, o=word, b=b), answer


def numbers(draw: Draw, sign: str) -> tuple[int, int]:
    """Two that can be added, subtracted or multiplied by heart; a good half of those that are added have two digits."""
    if sign == "*":
        return draw.whole(0, 10), draw.whole(0, 10)
    kind = draw.weighted((("small", 35), ("one and two", 25), ("two", 40)))
    a = draw.whole(0, 12) if kind == "small" else draw.whole(10, 50)
    b = draw.whole(10, 50) if kind == "two" else draw.whole(0, 12)
    if sign == "-":
        return max(a, b), min(a, b)
    return (a, b) if draw.often(0.5) else (b, a)


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
    if draw.often(0.5):
        return of_the_world(draw)
    form, table = draw.of(("unknown", WORLD), ("unknown", WORLD), ("unable", WORKS))
    if draw.often(0.2) and not draw.held_out:
        return typed(draw, form), ANSWERS[form]
    return varied(draw, draw.wording(table).format(**slots)), ANSWERS[form]


def of_the_world(draw: Draw) -> tuple[str, str]:
    """The same about what there is."""
    form, table = draw.weighted(
        (
            (("unknown", ASKED), 24), (("unknown", OF_TOPICS), 18), (("unknown", OF_FIGURES), 8),
            (("unknown", OF_LANDS), 8), (("unknown", OF_FAMOUS), 8), (("unable", WISHES), 22), (("unable",
            OF_WORKS), 12),
        )
    )  # fmt: skip
    said = draw.wording(table).format(
        x=draw.pick(TOPICS), p=draw.pick(FIGURES), c=draw.pick(LANDS), t=draw.pick(FAMOUS), l=draw.pick(TONGUES)
    )
    return varied(draw, said), ANSWERS[form]


def echo(draw: Draw) -> tuple[str, str]:
    said = draw.made(draw.value, draw.phrase, draw.sentence)
    wordings = (
        "Repeat: {}", "Say {}", "Repeat after me: {}", "Please repeat: {}", "Echo {}", "Say this: {}",
        "{}\nRepeat that.", "Repeat the following: {}", "Please say: {}", "Just say {}", "repeat {}",
        "Say exactly this: {}", 'Say "{}"', "Now repeat: {}", "Can you repeat this? {}", "Answer with {}",
        "{}\nSay that again.", "Repeat my words: {}", "Reply with: {}", "Give this back to me: {}", 'Please say "{}"',
        "Repeat what I say: {}", "say it back: {}", "Respond with {}", "{}\nPlease repeat what I said.",
        'Repeat "{}"',
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
