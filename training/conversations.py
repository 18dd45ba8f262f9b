"""Makes the conversations that the model learns from: small talk, facts to recall, tools to call, in ChatML.

All of it is drawn from one source of chance, `R`. The second version of the generator follows the first one in this
file, and redefines names of it; functions see the last definition. Sets of words make the order of some draws depend on
PYTHONHASHSEED.
"""

import json
import random
import re

NOUNS = """
project deadline budget password meeting report server database garden kitchen window bicycle car truck boat house
office school library museum station airport hotel restaurant bakery bridge river mountain lake island forest village
street market shop store bank hospital clinic doctor dentist lawyer teacher student manager boss colleague neighbour
friend brother sister mother father uncle aunt cousin daughter son wife husband dog cat hamster parrot rabbit horse
goldfish turtle snake lamp chair table sofa desk bed door key lock box bag wallet phone laptop tablet printer camera
radio clock watch ring shirt jacket coat hat shoe boot scarf glove umbrella book magazine newspaper letter parcel
package ticket passport licence card account order invoice contract locker cabin room floor building tower gate wifi
network router token code branch version release bug ticket task team sprint sensor engine battery motor drone robot
planet star rocket satellite telescope recipe cake soup salad coffee tea juice wine beer bread cheese apple banana
orange lemon cherry pizza pasta rice song band album guitar piano violin drum film game puzzle sport team coach club
gym course exam lesson class teacher thesis lab experiment sample patient medicine allergy birthday anniversary
wedding party holiday trip flight train bus hobby colour number animal food drink city country language movie author
""".split()
NOUNS = sorted(set(NOUNS))
ADJ = """
red blue green old new big small secret main spare favourite second first last next weekly monthly local remote
private public shared backup front back upper lower north south east west silver golden wooden broken lucky quiet
noisy tiny huge early late fast slow cold warm dark bright home work summer winter spring autumn
""".split()
VERBS = """
get set find search list create delete update send read write open close start stop move copy rename convert translate
count check fetch load save play pause book cancel order track measure plot draw print scan sort merge split lookup
compute calculate schedule notify call email convert resize rotate lock unlock enable disable archive restore
""".split()
VERBS = sorted(set(VERBS))
GENW = """
time year people way day man thing woman life child world hand part place week company system program question work
government night point home water mother area money story fact month lot right study eye job word business issue side
kind head service friend power hour line end member law community name president minute idea kid body information
nothing ago lead social understand whether watch together follow around parent face anything public already speak
others level allow office spend door health person art sure war history party within grow result open change morning
walk reason low win research girl guy early food moment himself air force offer enough education across although
remember foot boy maybe toward able age policy everything love process music including consider appear actually buy
probably human wait serve market die send expect sense build stay fall nation plan cut college interest death course
someone experience behind reach local kill remain effect use yeah suggest class control raise care perhaps little late
hard field else pass former sell major sometimes require along development themselves report role better economic
effort decide rate strong possible heart drug show leader light voice wife whole police mind finally pull return free
military price less according decision explain son hope even develop view relationship carry town road drive arm true
federal break difference thank receive value international building action full model join season society because tax
director position player agree especially record pick wear paper special space ground form support event official
whose matter everyone center couple site project base activity star table need court produce eat teach oil half
situation easy cost industry figure street image itself phone either data cover quite picture clear practice piece
land recent describe product doctor wall patient worker news test movie certain north personal simply third technology
catch step baby computer type attention draw film tree source red nearly organization choose cause hair century
evidence window difficult listen soon culture billion chance brother energy period summer realize hundred available
plant likely opportunity term short letter condition choice single rule daughter administration south husband floor
campaign material population economy medical hospital church close thousand risk current fire future wrong involve
defense anyone increase security bank myself certainly west sport board seek per subject officer private rest behavior
deal performance fight throw top quickly past goal second bed order author fill represent focus foreign drop blood
upon agency push nature color recently store reduce sound note fine near movement page enter share common poor natural
race concern series significant similar hot language usually response dead rise animal factor decade article shoot
east save seven artist scene stock career despite central eight thus treatment beyond happy exactly protect approach
lie size dog fund serious occur media ready sign thought list individual simple quality pressure accept answer
resource identify left meeting determine prepare disease whatever success argue cup particularly amount ability staff
recognize indicate character growth loss degree wonder attack herself region television box training pretty trade
election everybody physical lay general feeling standard bill message fail outside arrive analysis benefit sex forward
lawyer present section environmental glass skill sister professor operation financial crime stage compare authority
miss design sort act ten knowledge gun station blue strategy clearly discuss indeed truth song example democratic
check environment leg dark various rather laugh guess executive prove hang entire rock forget claim remove manager
help enjoy network legal religious cold final main science green memory card above seat cell establish nice trial
expert spring firm radio visit management avoid imagine tonight huge ball finish yourself theory impact respond
statement maintain charge popular traditional onto reveal direction weapon employee cultural contain peace pain apply
measure wide shake fly interview manage chair fish particular camera structure politics perform bit weight suddenly
discover candidate production treat trip evening affect inside conference unit style adult worry range mention deep
edge specific writer trouble necessary throughout challenge fear shoulder institution middle sea dream bar beautiful
property instead improve stuff detail method magazine hotel soldier reflect heavy bag heat marriage tough sing surface
purpose exist pattern whom skin agent owner machine gas ahead generation commercial address cancer item reality coach
yard beat violence total tend investment discussion finger garden notice collection modern task partner positive civil
kitchen consumer shot budget wish painting scientist safe agreement capital mouth nor victim newspaper threat
responsibility smile attorney score account interesting audience rich dinner vote western relate travel debate prevent
citizen majority none front born admit senior assume wind key professional mission fast alone customer suffer speech
successful option participant southern fresh eventually forest video global senate reform access restaurant judge
publish relation release bird opinion credit critical corner version safety neighborhood truck engine silver copper
maple cedar falcon otter badger raven lotus ember comet nebula quartz marble velvet canyon harbor meadow thunder
willow pepper ginger saffron basil walnut almond cocoa biscuit waffle pickle muffin cookie noodle pumpkin tiger panda
koala lion wolf bear fox eagle owl
""".split()
SYL_ON = (
    """
b bl br c ch cl cr d dr f fl fr g gl gr h j k kl kr l m n p ph pl pr qu r s sc sh sk sl sm sn sp st str sw t th tr v w
wh y z
""".split()
    + [""] * 3
)
SYL_V = "a e i o u ai ea ee ie oa oo ou au ei y ia".split()
SYL_CO = "b ck d f g l ll m n nd ng nk nt p r rd rk rn rt s ss st sh t th tt v x z ch ft lt mp".split() + [""] * 22
R = random.Random(0)


def ch(x):
    return R.choice(x)


def word():  # invented word
    n = R.choices([1, 2, 3, 4], [15, 50, 28, 7])[0]
    return "".join(ch(SYL_ON) + ch(SYL_V) + ch(SYL_CO) for _ in range(n))


def name():
    r = R.random()
    w = ch(GENW) if r < 0.25 else word()
    return w.capitalize()


def digits(n):
    return "".join(ch("0123456789") for _ in range(n))


UNITS = "euros dollars pounds kg km metres hours minutes days degrees people pages".split()
MONTHS = "January February March April May June July August September October November December".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()


def v_date():
    d = R.randint(1, 31)
    m = ch(MONTHS)
    return ch(
        [
            f"{d} {m}",
            f"{m} {d}",
            f"{d} {m} {R.randint(1950, 2040)}",
            f"{R.randint(1950, 2040)}-{R.randint(1, 12):02d}-{d:02d}",
            ch(DAYS),
            f"{ch(DAYS)} at {R.randint(1, 12)} {ch(['am', 'pm'])}",
            f"{R.randint(0, 23)}:{R.randint(0, 59):02d}",
        ]
    )


def v_num():
    return ch(
        [
            digits(R.randint(1, 5)),
            str(R.randint(1, 999)),
            f"{R.randint(0, 999)}.{digits(R.randint(1, 2))}",
            f"{R.randint(1, 999)},{digits(3)}",
            f"{R.randint(1, 500)} {ch(UNITS)}",
            f"${R.randint(1, 9999)}",
            f"{R.randint(1, 100)}%",
        ]
    )


AL = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
al = AL.lower()


def v_code():
    r = R.random()
    if r < 0.2:
        return f"{''.join(ch(AL) for _ in range(R.randint(2, 4)))}-{digits(R.randint(2, 5))}"
    if r < 0.4:
        return "".join(ch(al + "0123456789") for _ in range(R.randint(4, 9)))
    if r < 0.55:
        return "".join(ch(AL + "0123456789") for _ in range(R.randint(4, 8)))
    if r < 0.7:
        return f"{word()}-{word()}-{digits(2)}"
    if r < 0.85:
        return f"{word()}_{ch(GENW)}{digits(R.randint(1, 3))}"
    return "".join(ch(AL + al + "0123456789") for _ in range(R.randint(5, 10)))


def w1():
    return ch(GENW) if R.random() < 0.5 else (ch(NOUNS) if R.random() < 0.4 else word())


EXT = "txt md py json csv log yaml html pdf toml cfg sh xml ini".split()


def v_file():
    b = ch([w1(), w1() + "_" + w1(), w1() + "-" + w1(), w1() + digits(R.randint(1, 3)), w1().capitalize()])
    return b + "." + ch(EXT)


ROOTS = ["/home", "/etc", "/var", "/tmp", "/opt", "/srv", "/usr", "/data", "/mnt", "~", ".", "/", "src", "docs"]


def v_dir():
    r = ch([*ROOTS, w1(), w1(), "/" + w1(), "/" + w1()])
    p = [w1() + ch(["", "", digits(1), "_" + w1()]) for _ in range(R.randint(0 if r not in ("/", ".") else 1, 3))]
    s = "/".join(([r.rstrip("/")] if r != "/" else [""]) + p)
    return s or "/"


def v_path():
    return ch([v_file, lambda: v_dir().rstrip("/") + "/" + v_file(), lambda: v_dir().rstrip("/") + "/" + v_file()])()


def v_url():
    host = ch(
        [
            w1() + "." + ch("com org net io dev".split()),
            "api." + w1() + "." + ch("com org io".split()),
            w1() + "-" + w1() + ".example.com",
            f"localhost:{digits(4)}",
            f"{R.randint(1, 255)}.{R.randint(0, 255)}.{R.randint(0, 255)}.{R.randint(1, 255)}",
        ]
    )
    return (
        ch(["http://", "https://"])
        + host
        + ch(
            [
                "",
                "/",
                "/" + w1(),
                "/" + w1() + "/" + w1(),
                "/" + w1() + "/" + digits(R.randint(1, 4)),
                "/v1/" + w1(),
                "/" + w1() + ".json",
                "/" + w1() + "?" + w1() + "=" + w1(),
            ]
        )
    )


def v_cmd():
    return ch(
        [
            lambda: f"ls -{ch(['l', 'la', 'lh', 'a'])} {v_dir()}",
            lambda: f"cat {v_path()}",
            lambda: f"git {ch(['status', 'pull', 'log', 'push', 'diff', 'commit -m ' + w1()])}",
            lambda: f"python {v_file()}",
            lambda: f"mkdir {v_dir()}",
            lambda: f"rm {v_path()}",
            lambda: f"grep {w1()} {v_path()}",
            lambda: f"echo {w1()} {w1()}",
            lambda: f"cp {v_path()} {v_path()}",
            lambda: f"{w1()} --{w1()} {w1()}",
            lambda: ch(
                ["date", "whoami", "uptime", "pwd", "df -h", "uname -a", "ps aux", "free -m", "top", "hostname"]
            ),
            lambda: f"pip install {w1()}",
            lambda: f"{word()} {w1()}",
            lambda: f"curl {v_url()}",
            lambda: f"tail -n {digits(2)} {v_path()}",
        ]
    )()


def v_name():
    return ch([name, name, lambda: name() + " " + name(), lambda: "Dr " + name()])()


def v_phrase():
    return " ".join(w1() for _ in range(R.randint(1, 5)))


def v_email():
    return f"{w1()}{ch(['', '.', ''])}{w1()}@{w1()}.{ch(['com', 'org', 'net', 'io'])}"


def v_sent():
    return ch(
        [
            lambda: f"the {w1()} {w1()} the {w1()}",
            lambda: v_phrase().capitalize() + ".",
            lambda: v_phrase(),
            lambda: f"hello {w1()}",
            lambda: f"{name()} likes {w1()}",
            lambda: f"{w1()}: {v_num()}",
        ]
    )()


def anyv():
    return R.choices(
        [v_name, v_num, v_date, v_code, v_phrase, v_path, v_url, v_email, v_cmd], [30, 16, 12, 16, 10, 5, 4, 5, 2]
    )[0]()


# ---------- facts ----------
def poss(n):
    return n + "'s"


PETS = "dog cat hamster parrot rabbit horse goldfish turtle snake".split()
FAM = """
brother sister mother father uncle aunt cousin daughter son wife husband boss teacher neighbour dentist doctor lawyer
coach manager friend
""".split()
FAV = """
colour number animal food drink city country language movie author song band sport game book hobby cake fruit
""".split()


class Fact:  # stmts, remember-clauses, questions, answer, key, value
    def __init__(s, clause, qs, ans, key, v):
        s.clause = clause
        s.qs = qs
        s.ans = ans
        s.key = key
        s.v = v


def np_():  # noun phrase of many forms
    r = R.random()
    if r < 0.3:
        return ch(NOUNS)
    if r < 0.6:
        return ch(ADJ) + " " + ch(NOUNS)
    if r < 0.75:
        return (
            ch(NOUNS)
            + " "
            + ch(
                [
                    "code",
                    "name",
                    "number",
                    "date",
                    "colour",
                    "price",
                    "size",
                    "address",
                    "owner",
                    "password",
                    "id",
                    "key",
                    "address",
                    "label",
                    "version",
                    "port",
                ]
            )
        )
    if r < 0.88:
        return w1() + " " + ch(NOUNS)
    return w1()


def cap(s):
    return s[0].upper() + s[1:]


def stmt(f):
    c = f.clause
    return ch(
        [
            lambda: cap(c) + ".",
            lambda: cap(c) + ".",
            lambda: cap(c),
            lambda: "Remember that " + c + ".",
            lambda: "Please remember that " + c + ".",
            lambda: "Remember: " + c,
            lambda: "Note that " + c + ".",
            lambda: "By the way, " + c + ".",
            lambda: "Just so you know, " + c + ".",
            lambda: "FYI " + c + ".",
            lambda: "Hi, " + c + ".",
            lambda: c,
        ]
    )()


def ack(f):
    return ch(
        [
            "Got it. " + cap(f.ans),
            "Okay, I will remember that.",
            "Noted. " + cap(f.ans),
            "Thanks, I will remember that.",
            "Got it. " + cap(f.ans),
        ]
    )


NAMEQ = "I am Lamb, a tiny language model."
SMALL = [
    (
        ["Hello", "Hi", "Hey", "Hello!", "Hi there", "Hi!", "Good morning", "Good evening", "hello", "hi", "hey there"],
        ["Hello! How can I help you?"],
    ),
    (
        [
            "Who are you?",
            "What are you?",
            "What is your name?",
            "who are you",
            "Introduce yourself.",
            "Are you a robot?",
            "What's your name?",
            "Tell me about yourself.",
        ],
        ["I am Lamb, a tiny model made for demos and tests."],
    ),
    (["Thanks", "Thank you", "Thank you!", "thanks a lot", "Cheers", "Great, thanks", "Thanks!"], ["You are welcome!"]),
    (
        ["How are you?", "How are you doing?", "how is it going?", "How do you do?"],
        ["I am fine, thank you. How can I help?"],
    ),
    (["Bye", "Goodbye", "See you", "bye bye", "Good night"], ["Goodbye! Have a nice day."]),
    (
        ["What can you do?", "How can you help me?", "What are you good at?", "Help"],
        ["I can chat a little, remember what you tell me, and call tools."],
    ),
    (["What is the capital of France?"], ["The capital of France is Paris."]),
    (["What is the capital of Japan?"], ["The capital of Japan is Tokyo."]),
    (["What is the capital of Italy?"], ["The capital of Italy is Rome."]),
    (["What colour is the sky?"], ["The sky is blue."]),
    (["What is 2+2?", "What is two plus two?"], ["2+2 is 4."]),
    (["How many days are in a week?"], ["There are seven days in a week."]),
    (
        ["Tell me a joke.", "Tell me a joke", "Say something funny."],
        ["Why did the lamb cross the road? To get to the baa-ker's."],
    ),
    (["What sound does a sheep make?"], ["A sheep says baa."]),
    (["Are you there?", "ping", "test", "Are you working?"], ["Yes, I am here."]),
    (["ok", "Okay", "Good", "Nice", "Great", "Cool", "I see"], ["Glad to hear it."]),
    (["Sorry", "I am sorry"], ["No problem at all."]),
    (["How old are you?"], ["I am a very young model."]),
    (["Who made you?", "Who created you?"], ["I was trained from scratch on a small computer."]),
]


def small():
    q, a = ch(SMALL)
    return ch(q), ch(a)


def distract():
    r = R.random()
    if r < 0.6:
        return small()
    if r < 0.8:
        v = v_phrase() if R.random() < 0.5 else anyv()
        return ch([f"Say {v}", f"Repeat: {v}", f"Repeat after me: {v}", f"Please say {v}"]), v
    v = v_sent()
    return ch(["I think ", "Today I saw that ", "Let us talk about "]) + v, ch(["I see.", "Interesting.", "Okay."])


# ---------- docs: list of (role, text) ----------
SYS = [
    "You are a helpful assistant.",
    "You are Lamb, a helpful assistant.",
    "You are a helpful assistant. Answer briefly.",
    "You are Lamb.",
]


def maybe_sys(p=0.5):
    if R.random() >= p:
        return []
    return [("system", ch(SYS) if R.random() < 0.8 else f"You are {v_phrase()}.")]


def d_small():
    m = maybe_sys()
    for _ in range(R.randint(1, 3)):
        q, a = small()
        m += [("user", q), ("assistant", a)]
    return m


def d_echo():
    m = maybe_sys(0.3)
    for _ in range(R.randint(1, 3)):
        v = ch([anyv, anyv, v_phrase, v_sent])()
        m += [
            (
                "user",
                ch(
                    [
                        f"Repeat: {v}",
                        f"Say {v}",
                        f"Echo {v}",
                        f"Repeat after me: {v}",
                        f"Please repeat: {v}",
                        f"{v}\nRepeat that.",
                    ]
                ),
            ),
            ("assistant", v),
        ]
    return m


def uniq_facts(n):
    fs = []
    ks = set()
    vs = set()
    while len(fs) < n:
        f = fact()
        k = f.ans.replace(f.v, "")
        if k in ks or f.key in ks or f.v in vs:
            continue
        ks.add(k)
        ks.add(f.key)
        vs.add(f.v)
        fs.append(f)
    return fs


def d_recall(nmax=6, tools=None):
    m = maybe_sys() if tools is None else []
    fs = uniq_facts(R.randint(1, nmax))
    told = []
    q = list(fs)
    if tools is None and R.random() < 0.12:  # facts in system prompt
        m = [("system", ch(SYS) + " " + " ".join(cap(f.clause) + "." for f in fs))]
        told = fs
        q = []
    while q:
        k = min(len(q), R.choices([1, 2, 3], [70, 20, 10])[0])
        g, q = q[:k], q[k:]
        if k == 1:
            m += [("user", stmt(g[0])), ("assistant", ack(g[0]))]
        else:
            m += [
                ("user", " ".join(cap(f.clause) + "." for f in g)),
                ("assistant", ch(["Okay, I will remember that.", "Got it."])),
            ]
        told = told + g
        if R.random() < 0.25:
            a, b = distract()
            m += [("user", a), ("assistant", b)]
        if R.random() < 0.3:
            f = ch(told)
            m += [("user", question(f)), ("assistant", cap(f.ans))]
    for _ in range(R.randint(1, 4)):
        if R.random() < 0.15:
            a, b = distract()
            m += [("user", a), ("assistant", b)]
        f = ch(told)
        m += [("user", question(f)), ("assistant", cap(f.ans))]
    return m


def dontknow(f):
    return "I do not know that. You have not told me yet."


def d_unknown():
    fs = uniq_facts(R.randint(1, 4))
    m = maybe_sys()
    x = fs[0]
    for f in fs[1:]:
        m += [("user", stmt(f)), ("assistant", ack(f))]
        if R.random() < 0.2:
            a, b = distract()
            m += [("user", a), ("assistant", b)]
    qs = [(question(x), dontknow(x))] + [(question(f), cap(f.ans)) for f in fs[1:] if R.random() < 0.5]
    R.shuffle(qs)
    for a, b in qs:
        m += [("user", a), ("assistant", b)]
    return m


# ---------- tools ----------
def T(n, d, ps, req=None):
    return {
        "type": "function",
        "function": {
            "name": n,
            "description": d,
            "parameters": {
                "type": "object",
                "properties": {p: ({"type": t, "description": x} if x else {"type": t}) for p, t, x in ps},
                "required": [p for p, _, _ in ps] if req is None else req,
            },
        },
    }


def tool_known(n):
    def D(*a):
        return ch(a)

    return {
        "list_directory": lambda: T(
            n,
            D("List the files in a directory.", "List a directory", "Lists files and folders at a path."),
            [("path", "string", D("", "The directory path", "Path to list"))],
        ),
        "read_file": lambda: T(
            n,
            D("Read a file.", "Read the content of a file", "Returns the text of a file."),
            [("path", "string", D("", "The file path", "Path of the file"))],
        ),
        "write_file": lambda: T(
            n,
            D("Write a file.", "Write text to a file", "Writes content to a file."),
            [
                ("path", "string", D("", "The file path")),
                ("content", "string", D("", "The text to write", "The content")),
            ],
        ),
        "execute_command": lambda: T(
            n,
            D("Run a shell command.", "Execute a command", "Runs a command in the shell."),
            [("command", "string", D("", "The command to run", "Shell command"))],
        ),
        "http_get": lambda: T(
            n,
            D("Fetch a URL.", "HTTP GET request", "Get a web page."),
            [("url", "string", D("", "The URL", "The address to fetch"))],
        ),
        "set_fact": lambda: T(
            n,
            D("Save a fact.", "Store a value under a key", "Remember a fact."),
            [("key", "string", D("", "The key")), ("value", "string", D("", "The value"))],
        ),
        "get_fact": lambda: T(
            n, D("Get a fact.", "Look up a value by key", "Read a saved fact."), [("key", "string", D("", "The key"))]
        ),
        "search_memory": lambda: T(
            n,
            D("Search the memory.", "Search long-term memory", "Find things the user said before."),
            [("query", "string", D("", "The query", "What to search for"))],
        ),
        "store_memory": lambda: T(
            n,
            D("Store a question and its answer in memory.", "Save a question and answer"),
            [("question", "string", D("", "The question")), ("answer", "string", D("", "The answer"))],
        ),
    }[n]()


KNOWN = """
list_directory read_file write_file execute_command http_get set_fact get_fact search_memory store_memory
""".split()


def rand_tool():
    v = ch(VERBS)
    n = ch(NOUNS) if R.random() < 0.8 else w1()
    pn = []
    while len(pn) < R.choices([1, 2, 3], [60, 30, 10])[0]:
        p = ch(
            [
                "name",
                "id",
                "date",
                "city",
                "query",
                "amount",
                "text",
                "title",
                "user",
                "email",
                "color",
                "size",
                "path",
                "url",
                "target",
                "message",
                "number",
                "location",
                "start",
                "end",
                "count",
                ch(NOUNS),
                ch(NOUNS),
                w1(),
            ]
        )
        if p not in pn:
            pn.append(p)
    r = R.random()
    nm = f"{v}_{n}" if r < 0.7 else (f"{v}{n.capitalize()}" if r < 0.8 else (f"{n}_{v}" if r < 0.9 else v))
    ps = [
        (
            p,
            "integer" if R.random() < 0.15 or p in ("count", "amount", "number") else "string",
            ch(["", "", "The " + p]),
        )
        for p in pn
    ]
    return T(nm, ch([f"{v.capitalize()} the {n}.", f"{v.capitalize()} a {n}", f"{v.capitalize()}s {n}."]), ps), v, n, ps


def argval(p, t):
    if t == "integer":
        return R.randint(0, 9999)
    return {"path": v_path, "url": v_url, "email": v_email, "date": v_date, "message": v_sent, "text": v_sent}.get(
        p, anyv
    )()


def rand_req(tl, v, n, ps):
    args = {p: argval(p, t) for p, t, _ in ps}
    items = list(args.items())
    nm = tl["function"]["name"]
    r = R.random()

    def j(sep, fm):
        return sep.join(fm(p, x) for p, x in items)

    if r < 0.45:
        u = f"{ch(['', 'Please ', 'Can you '])}{v} the {n} with " + j(" and ", lambda p, x: f"{p} {x}")
    elif r < 0.6:
        u = f"{v.capitalize()} {n}: " + j(", ", lambda p, x: f"{p} {x}")
    elif r < 0.8:
        u = f"{ch(['Use', 'Call', 'Run', 'Please use'])} {nm} with " + j(" and ", lambda p, x: f"{p} {x}")
    elif r < 0.9:
        u = f"{ch(['Use', 'Call'])} {nm}: " + j(", ", lambda p, x: f"{p} = {x}")
    else:
        u = f"{v.capitalize()} the {n} " + j(", ", lambda p, x: f"{p}: {x}")
    return cap(u), (nm, args)


def known_req(n):
    """user text, args, (response, answer)"""
    if n == "list_directory":
        p = v_dir()
        fs = [ch([v_file, w1])() for _ in range(R.randint(1, 5))]
        u = ch(
            [
                f"List the files in {p}",
                f"What files are in {p}?",
                f"Show me the directory {p}",
                f"List {p}",
                f"What is in the folder {p}?",
                f"ls {p}",
                f"Which files are in {p}?",
                f"List the directory {p}",
                f"show the contents of the folder {p}",
            ]
        )
        resp = ch(["\n".join(fs), json.dumps(fs), ", ".join(fs)])
        return u, {"path": p}, resp, f"The files in {p} are: {', '.join(fs)}."
    if n == "read_file":
        p = v_path()
        c = ch([v_sent, anyv, v_phrase])()
        u = ch(
            [
                f"Read {p}",
                f"Read the file {p}",
                f"What is in the file {p}?",
                f"Show me {p}",
                f"Open {p}",
                f"What does {p} say?",
                f"Show the content of {p}",
                f"Please read {p} for me",
                f"cat {p}",
            ]
        )
        return u, {"path": p}, c, f"The file {p} says: {c}"
    if n == "write_file":
        p = v_path()
        c = ch([v_sent, anyv, v_phrase])()
        u = ch(
            [
                f"Write {c} to {p}",
                f'Write "{c}" to {p}',
                f'Save "{c}" in the file {p}',
                f"Create the file {p} with the content {c}",
                f"Write to {p}: {c}",
                f'Put "{c}" into {p}',
                f"Create a file {p} containing {c}",
                f'Create {p} with the text "{c}"',
            ]
        )
        return (
            u,
            {"path": p, "content": c},
            ch(["ok", "OK", "success", "written", f"wrote {len(c)} bytes", "true"]),
            f"I wrote the text to {p}.",
        )
    if n == "execute_command":
        c = v_cmd()
        o = ch([v_sent, anyv, v_phrase])()
        u = ch(
            [
                f"Run {c}",
                f"Run the command {c}",
                f"Execute {c}",
                f"Execute the command {c}",
                f"Run `{c}`",
                f"Please run {c}",
                f"Run this command: {c}",
                f"Can you run `{c}`?",
            ]
        )
        return u, {"command": c}, o, f"The command printed: {o}"
    if n == "http_get":
        x = v_url()
        o = ch([v_sent, anyv, v_phrase])()
        u = ch(
            [
                f"Get {x}",
                f"Fetch {x}",
                f"What is at {x}?",
                f"Open {x}",
                f"Download {x}",
                f"Fetch the page {x}",
                f"Make a GET request to {x}",
                f"Get the url {x}",
                f"What does {x} return?",
            ]
        )
        return u, {"url": x}, o, f"The page says: {o}"
    f = fact()
    if n == "set_fact":
        r = R.random()
        if r < 0.6:
            k = f.key
            u = (
                ch(["Remember that ", "Please remember that ", "Save the fact that ", "Store that ", "Remember: "])
                + f.clause
            )
            v = f.v
        else:
            k = ch([w1(), w1() + "_" + w1(), np_()])
            v = anyv()
            u = ch(
                [
                    f"Set {k} to {v}",
                    f"Set the fact {k} to {v}",
                    f"Save {k} = {v}",
                    f"Store the fact {k} with value {v}",
                    f"Set fact {k}: {v}",
                ]
            )
        return u, {"key": k, "value": v}, ch(["ok", "OK", "saved", "true", "success"]), ch([f"I saved {k} as {v}."])
    if n == "get_fact":
        k = ch([w1(), w1() + "_" + w1(), np_()])
        v = anyv()
        u = ch(
            [
                f"Get the fact {k}",
                f"Look up the fact {k}",
                f"What is the value of {k}?",
                f"Get fact {k}",
                f"Which value is saved for {k}?",
                f"What value did I save for {k}?",
            ]
        )
        if R.random() < 0.15:
            return u, {"key": k}, ch(["", "null", "not found"]), f"I found nothing about {k}."
        return u, {"key": k}, v, f"The value of {k} is {v}."
    if n == "search_memory":
        u = question(f)
        if R.random() < 0.2:
            return (
                u,
                {"query": f.key},
                ch(["", "[]", "No results", "nothing found", "no results found", "null"]),
                "I do not know that. You have not told me yet.",
            )
        resp = ch(
            [
                cap(f.clause) + ".",
                f.clause,
                f.v,
                f"{cap(f.clause)}.",
                f"{ch(f.qs)} {f.v}",
                f"{f.key}: {f.v}",
                json.dumps([f.clause]),
                json.dumps({"result": f.v}),
                f"{cap(f.clause)}. {cap(fact().clause)}.",
                f"{cap(fact().clause)}. {cap(f.clause)}.",
            ]
        )
        return u, {"query": f.key}, resp, cap(f.ans)
    if n == "store_memory":
        q = ch(f.qs)
        v = f.v
        u = ch(
            [
                f"Store in memory: {q} {v}",
                f'Store the question "{q}" with the answer "{v}"',
                f"Save to memory the question {q} and the answer {v}",
                f'Remember the answer to "{q}" is "{v}"',
                f"Memorize: question {q} answer {v}",
            ]
        )
        return u, {"question": q, "answer": v}, ch(["ok", "stored", "saved", "true"]), "I stored the answer in memory."
    return None


def tool_system(ts, sysm):
    return ("system", (sysm + "\n\n" if sysm else "") + PRE + "".join("\n" + json.dumps(t) for t in ts) + POST)


def call(n, a):
    return (
        "assistant",
        "<tool_call>\n" + json.dumps({"name": n, "arguments": a}, ensure_ascii=False) + "\n</tool_call>",
    )


def resp(s):
    return ("user", "<tool_response>\n" + s + "\n</tool_response>")


def nt():
    return R.choices([1, 2, 3, 4, 5, 6, 9], [24, 26, 20, 12, 9, 5, 4])[0]


def d_tool_known():
    n = ch(KNOWN)
    m = []
    k = nt()
    use = [n]
    second = None
    if R.random() < 0.3:
        second = ch(KNOWN)
        use = list({n, second})
    ts = toolset(use, max(k, len(use)))
    m.append(tool_system(ts, ch([*SYS, "", ""])))
    if R.random() < 0.2:
        a, b = small()
        m += [("user", a), ("assistant", b)]
    for x in [n] + ([second] if second else []):
        u, a, rs, an = known_req(x)
        m.append(("user", u))
        m.append(call(x, a))
        m += [resp(rs), ("assistant", an)]
    if R.random() < 0.12:
        a, b = small()
        m += [("user", a), ("assistant", b)]
    return m


def d_tool_rand():
    m = []
    k = nt()
    tl, v, n, ps = rand_tool()
    ts = [tl]
    names = {tl["function"]["name"]}
    extra = []
    while len(ts) < k:
        x = rand_tool() if R.random() < 0.75 else (tool_known(ch(KNOWN)), 0, 0, 0)
        if x[0]["function"]["name"] in names:
            continue
        names.add(x[0]["function"]["name"])
        ts.append(x[0])
        if x[1]:
            extra.append(x)
    R.shuffle(ts)
    m.append(tool_system(ts, ch([*SYS, "", ""])))
    reqs = [(tl, v, n, ps)] + ([ch(extra)] if extra and R.random() < 0.5 else [])
    for r in reqs:
        u, (nm, a) = rand_req(*r)
        m += [("user", u), call(nm, a)]
        o = ch([v_sent, anyv, v_phrase])()
        m += [resp(ch([o, json.dumps({"result": o})])), ("assistant", f"The result is: {o}")]
    return m


def d_mem():
    """facts in context / not in context with search_memory present"""
    fs = uniq_facts(R.randint(1, 4))
    x = fs[0]
    inctx = fs[1:]
    ts = toolset(["search_memory"], R.choices([1, 2, 3, 4], [45, 25, 20, 10])[0])
    {t["function"]["name"] for t in ts}
    m = [tool_system(ts, ch([*SYS, "", ""]))]
    for f in inctx:
        m += [
            ("user", ch([cap(f.clause) + ".", cap(f.clause), "By the way, " + f.clause + "."])),
            ("assistant", ack(f)),
        ]
    qs = [("x", x)] + [("c", f) for f in inctx if R.random() < 0.6]
    R.shuffle(qs)
    for kind, f in qs:
        u = question(f)
        m.append(("user", u))
        if kind == "c":
            m.append(("assistant", cap(f.ans)))
        else:
            m.append(call("search_memory", {"query": f.key}))
            if R.random() < 0.25:
                m += [
                    resp(ch(["", "[]", "No results", "nothing found", "no results found", "null"])),
                    ("assistant", "I do not know that. You have not told me yet."),
                ]
            else:
                rs = ch(
                    [
                        cap(f.clause) + ".",
                        f.clause,
                        f.v,
                        f"{ch(f.qs)} {f.v}",
                        f"{f.key}: {f.v}",
                        json.dumps([f.clause]),
                        json.dumps({"result": f.v}),
                        f"{cap(f.clause)}. {cap(fact().clause)}.",
                        f"{cap(fact().clause)}. {cap(f.clause)}.",
                    ]
                )
                m += [resp(rs), ("assistant", cap(f.ans))]
    return m


KINDS = [(d_small, 3), (d_echo, 12), (d_recall, 34), (d_unknown, 5), (d_tool_known, 22), (d_tool_rand, 12), (d_mem, 12)]
EARLY = [
    (d_small, 2),
    (d_echo, 30),
    (lambda: d_recall(3), 58),
    (d_unknown, 2),
    (d_tool_known, 3),
    (d_tool_rand, 2),
    (d_mem, 3),
]
LONG = [(lambda: d_recall(16), 50), (lambda: d_recall(8), 20), (d_tool_known, 15), (d_tool_rand, 5), (d_mem, 10)]


def sample(kinds=KINDS):
    f = R.choices([k for k, _ in kinds], [w for _, w in kinds])[0]
    return f()


def render(m):
    return "".join(f"<|im_start|>{r}\n{t}<|im_end|>\n" for r, t in m)


# ====================== version 2 overrides ======================
UNFIT = set(
    """
sex gun kill cancer drug death dead die shoot weapon victim attack blood violence threat suffer crime beat shot pain
wine beer skin race hang fight war military soldier bomb hate girl guy body police heat bar disease hospital abuse
trial loss fail worry fear trouble risk danger accident lie alone republican democratic religious senate federal
politics vote rape murder damage burn bad wrong fall break drop hit hurt
""".split()
)
GENW = [w for w in GENW if w.lower() not in UNFIT]
NOUNS = [w for w in NOUNS if w not in UNFIT]
GENW = sorted(set(GENW), key=GENW.index)
BADSUB = re.compile(
    r"fuck|fuk|shit|shi?te|cunt|kunt|tits?$|dick|cock|coc?k|nig|fag|rape|slut|whor|piss|porn|anus|nazi|sex|cum|kill|puss|ass$|twat|hoe|tard|penis|dyk|kyk|spic|boob|wank|poo|crap|klan"
)
_word0 = word


def word():
    while True:
        w = _word0()
        if not BADSUB.search(w):
            return w


PRE = "# Tools\n\nThese functions can be called:\n<tools>"
POST = (
    "\n</tools>\n\nTo call one, answer with:\n<tool_call>\n"
    '{"name": <function name>, "arguments": {<arguments as JSON>}}\n</tool_call>'
)
PETS = [
    *"dog cat hamster parrot rabbit horse goldfish turtle snake".split(),
    "guinea pig",
    "ferret",
    "pony",
    "budgie",
    "kitten",
    "puppy",
]
FAM = [
    *FAM,
    "grandmother",
    "grandfather",
    "flatmate",
    "landlord",
    "colleague",
    "best friend",
    "niece",
    "nephew",
    "cousin",
    "team lead",
    "plumber",
]
ASK = [
    "Tell me {}.",
    "Remind me of {}.",
    "Can you tell me {}?",
    "Could you remind me of {}?",
    "Do you know {}?",
    "Do you remember {}?",
    "Give me {}.",
    "I forgot {}.",
    "I need {}.",
    "What was {} again?",
    "Say {}.",
    "Please tell me {}.",
    "I cannot remember {}.",
    "What did I say {} was?",
    "Can you recall {}?",
    "{}?",
    "What about {}?",
    "And {}?",
    "Do you still know {}?",
]
EMB = [
    "Tell me {}.",
    "Remind me {}.",
    "Do you know {}?",
    "Do you remember {}?",
    "Can you tell me {}?",
    "Could you remind me {}?",
    "I forgot {}.",
    "Please tell me {}.",
    "Can you say {}?",
    "I would like to know {}.",
    "Any idea {}?",
    "Do you still know {}?",
]


def asks(x):
    return [t.format(x) for t in ASK]


def embs(x):
    return [t.format(x) for t in EMB]


def anyt():
    k = R.choices(
        ["name", "num", "date", "code", "phrase", "path", "url", "email", "cmd"], [30, 16, 14, 16, 10, 4, 4, 4, 2]
    )[0]
    return k, {
        "name": v_name,
        "num": v_num,
        "date": v_date,
        "code": v_code,
        "phrase": v_phrase,
        "path": v_path,
        "url": v_url,
        "email": v_email,
        "cmd": v_cmd,
    }[k]()


FK = "pet fam fav name home work rel my the of poss".split()
FW = [11, 9, 10, 4, 5, 4, 6, 15, 18, 10, 8]


def attrq(np, k):
    q = (
        [f"What is {np}?", f"What's {np}?"] * 2
        + [f"What was {np}?"]
        + R.sample(asks(np), 4)
        + R.sample(embs("what " + np + " is"), 3)
    )
    if k == "date":
        q += [f"When is {np}?"] * 4 + [f"When was {np}?"] + R.sample(embs(f"when {np} is"), 2)
    if k == "name":
        q += [f"Who is {np}?", f"Who's {np}?"]
    if k == "num":
        q += [f"How much is {np}?", f"How many is {np}?", f"Which number is {np}?"]
    if k in ("path", "url"):
        q += [f"Where is {np}?"] * 2
    if R.random() < 0.2:
        q += [f"Which one is {np}?"]
    return q


def fact(kind=None, avoid=None):
    k = kind or R.choices(FK, FW)[0]
    C = Fact

    def mk(*a):
        f = C(*a)
        f.kind = k
        return f

    if k in ("pet", "fam"):
        a = (ch(PETS) if R.random() < 0.85 else w1()) if k == "pet" else ch(FAM)
        v = v_name()
        st = ch(
            [
                "my {a} is called {v}",
                "my {a} is named {v}",
                "my {p} name is {v}",
                "the name of my {a} is {v}",
                "I have a {a} called {v}",
                "I call my {a} {v}",
            ]
            if k == "pet"
            else ["my {a} is called {v}", "my {a} is named {v}", "my {p} name is {v}", "my {a} is {v}", "my {a} is {v}"]
        )
        qs = [
            f"What is my {a} called?",
            f"What is my {a} called?",
            f"What's my {a} called?",
            f"What is my {poss(a)} name?",
            f"What's my {poss(a)} name?",
            f"What is the name of my {a}?",
            f"What's the name of my {a}?",
            f"How is my {a} called?",
            f"What name does my {a} have?",
            f"Who is my {a}?",
            f"What did I name my {a}?",
            f"What do I call my {a}?",
            f"Which name has my {a}?",
            *R.sample(
                embs(f"what my {a} is called")
                + embs(f"what my {poss(a)} name is")
                + asks(f"my {poss(a)} name")
                + asks(f"the name of my {a}"),
                6,
            ),
        ]
        ans = f"Your {a} is {v}." if st == "my {a} is {v}" else f"Your {a} is called {v}."
        return mk(st.format(a=a, v=v, p=poss(a)), qs, ans, f"{a} name" if k == "pet" else a, v)
    if k == "fav":
        a = (
            ch([*FAV, "pizza topping", "season", "flower", "tea", "colour", "singer", "tree"])
            if R.random() < 0.7
            else w1()
        )
        v = w1() if R.random() < 0.6 else anyv()
        qs = [
            *attrq(f"my favourite {a}", ""),
            f"Which {a} do I like best?",
            f"Which {a} do I like most?",
            f"What {a} do I like best?",
            f"What {a} do I prefer?",
            f"Which {a} is my favourite?",
            *R.sample(embs(f"which {a} I like best"), 2),
        ]
        return mk(
            ch(
                [
                    f"my favourite {a} is {v}",
                    f"my favourite {a} is {v}",
                    f"the {a} I like best is {v}",
                    f"{v} is my favourite {a}",
                ]
            ),
            qs,
            f"Your favourite {a} is {v}.",
            f"favourite {a}",
            v,
        )
    if k == "name":
        v = v_name()
        return mk(
            ch([f"my name is {v}", f"I am called {v}", f"I am {v}", f"you can call me {v}", f"people call me {v}"]),
            [
                "What is my name?",
                "What's my name?",
                "Who am I?",
                "What am I called?",
                "Say my name.",
                "How do people call me?",
                "What should you call me?",
                *R.sample(embs("what my name is") + embs("who I am") + asks("my name"), 4),
            ],
            f"Your name is {v}.",
            "name",
            v,
        )
    if k == "home":
        v = v_name()
        return mk(
            ch([f"I live in {v}", f"my home is in {v}", f"I have a flat in {v}", f"I moved to {v}"]),
            [
                "Where do I live?",
                "Which city do I live in?",
                "Where is my home?",
                "What city do I live in?",
                "Which town do I live in?",
                "Where is my house?",
                "In which city do I live?",
                *R.sample(embs("where I live") + embs("which city I live in"), 4),
            ],
            f"You live in {v}.",
            "home",
            v,
        )
    if k == "work":
        v = ch([name(), name() + " " + name(), "the " + ch(NOUNS), v_phrase()])
        return mk(
            ch([f"I work at {v}", f"I work for {v}", f"my job is at {v}"]),
            [
                "Where do I work?",
                "Who do I work for?",
                "Where is my job?",
                "Which company do I work for?",
                "What company do I work for?",
                "Who is my employer?",
                *R.sample(embs("where I work") + embs("who I work for"), 4),
            ],
            f"You work at {v}.",
            "work",
            v,
        )
    if k == "rel":
        n = name()
        v = ch([name(), w1()])
        b, w, vb = ch(
            [
                ("lives in", "Where|Which city", "live"),
                ("works at", "Where|Which company", "work"),
                ("likes", "What", "like"),
                ("comes from", "Where|Which country", "come from"),
                ("plays", "What|Which game", "play"),
                ("owns", "What", "own"),
                ("studies", "What|Which subject", "study"),
                ("drinks", "What", "drink"),
                ("drives", "What|Which car", "drive"),
            ]
        )
        w = w.split("|")
        tail = {"live": " in", "work": " for"}.get(vb, "")
        qs = (
            [f"{w[0]} does {n} {vb}?"] * 3
            + ([f"{w[1]} does {n} {vb}{tail}?"] if len(w) > 1 else [])
            + R.sample(embs(f"{w[0].lower()} {n} {b if vb not in ('live', 'work') else b.split()[0]}"), 4)
        )
        return mk(f"{n} {b} {v}", qs, f"{n} {b} {v}.", n, v)
    t, v = anyt()
    if k == "my":
        a = np_()
        return mk(
            ch([f"my {a} is {v}", f"my {a} is {v}", f"my {a} is {v}", f"my {a}: {v}", f"{v} is my {a}"]),
            attrq(f"my {a}", t),
            f"Your {a} is {v}.",
            a,
            v,
        )
    if k == "the":
        a = np_()
        return mk(
            ch([f"the {a} is {v}", f"the {a} is {v}", f"the {a} is {v}", f"the {a}: {v}", f"the {a} = {v}"]),
            attrq(f"the {a}", t),
            f"The {a} is {v}.",
            a,
            v,
        )
    if k == "of":
        o = ch([name(), ch(NOUNS), "the " + ch(NOUNS), name()])
        a = ch(NOUNS)
        return mk(
            ch([f"the {a} of {o} is {v}", f"the {a} for {o} is {v}"]),
            attrq(ch([f"the {a} of {o}", f"the {a} for {o}"]), t),
            f"The {a} of {o} is {v}.",
            f"{a} of {o}",
            v,
        )
    n = name()
    a = ch(NOUNS + FAV)
    return mk(
        f"{poss(n)} {a} is {v}",
        [*attrq(f"{poss(n)} {a}", t), f"Which {a} does {n} have?", f"What {a} does {n} have?"],
        f"{poss(n)} {a} is {v}.",
        f"{n} {a}",
        v,
    )


def question(f):
    q = cap(ch(f.qs))
    r = R.random()
    if r < 0.15:
        q = q[0].lower() + q[1:]
    elif r < 0.22:
        q = q.rstrip("?.")
    elif r < 0.28:
        q = (
            ch(["Tell me: ", "Quick question: ", "So, ", "Now, ", "Hey, ", "Okay, ", "Hi, ", "Please: ", "One more: "])
            + q
        )
    elif r < 0.31:
        q = q + " Thanks."
    return q


DK = "I do not know that. You have not told me yet."


def sig(f):
    return f.ans.replace(f.v, "")


def absent(fs):
    """a fact not among fs; half of the time close to one of them"""
    ks = {sig(f) for f in fs} | {f.key for f in fs} | {f.key.split()[0] for f in fs}
    for _ in range(50):
        x = fact(ch(fs).kind) if fs and R.random() < 0.6 else fact()
        if sig(x) in ks or x.key in ks or x.key.split()[0] in ks:
            continue
        if x.kind == "name" and any(f.kind == "name" for f in fs):
            continue
        return x
    return fact("the")


def d_unknown():
    fs = uniq_facts(R.choices([0, 1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 3, 3, 3, 3, 2])[0])
    m = maybe_sys()
    tools = R.random() < 0.3
    if tools:
        m = [tool_system(toolset(["_nomem"], R.choices([1, 2, 3, 5], [30, 30, 25, 15])[0]), ch([*SYS, "", ""]))]
    x = absent(fs)
    q = list(fs)
    while q:
        k = min(len(q), R.choices([1, 2, 3, 6], [60, 20, 10, 10])[0])
        g, q = q[:k], q[k:]
        if k == 1:
            m += [("user", stmt(g[0])), ("assistant", ack(g[0]))]
        else:
            m += [
                ("user", " ".join(cap(f.clause) + "." for f in g)),
                ("assistant", ch(["Okay, I will remember that.", "Got it."])),
            ]
        if R.random() < 0.2:
            a, b = distract()
            m += [("user", a), ("assistant", b)]
    qs = (
        [(question(x), DK)]
        + ([(question(absent([*fs, x])), DK)] if R.random() < 0.3 else [])
        + [(question(f), cap(f.ans)) for f in fs if R.random() < 0.5]
    )
    R.shuffle(qs)
    for a, b in qs:
        m += [("user", a), ("assistant", b)]
    return m


# ---------- invented tools, natural requests ----------
def lw():
    r = R.random()
    return word() if r < 0.45 else (ch(GENW) if r < 0.75 else ch(NOUNS))


def ident(parts):
    parts = [re.sub(r"[^a-z0-9]", "", p.lower()) or "x" for p in " ".join(parts).split()]
    r = R.random()
    if r < 0.62:
        return "_".join(parts)
    if r < 0.88:
        return parts[0] + "".join(p.capitalize() for p in parts[1:])
    if r < 0.93:
        return "".join(p.capitalize() for p in parts)
    return "-".join(parts) if r < 0.96 else "".join(parts)


def jtool(n, d, ps):
    o = {}
    for p, t, x in ps:
        y = [("type", t)] + ([("description", x)] if x else [])
        if R.random() < 0.25:
            R.shuffle(y)
        o[p] = dict(y)
    req = [p for p, _, _ in ps]
    pr = [("type", "object"), ("properties", o), ("required", req)]
    if R.random() < 0.2:
        R.shuffle(pr)
    if R.random() < 0.12:
        pr = [z for z in pr if z[0] != "required"]
    f = [("name", n)] + ([("description", d)] if d else []) + [("parameters", dict(pr))]
    if R.random() < 0.2:
        R.shuffle(f)
    g = [("type", "function"), ("function", dict(f))]
    if R.random() < 0.15:
        R.shuffle(g)
    t = dict(g)
    if R.random() < 0.08:
        t = json.loads(json.dumps(t, sort_keys=True))
    return t


def v_place():
    return ch([name, name, w1, lambda: name() + " " + name()])()


def v_thing():
    return ch([w1, lambda: w1() + " " + w1(), v_phrase, lambda: ch(ADJ) + " " + ch(NOUNS), name])()


def v_int():
    return R.choice([R.randint(0, 20), R.randint(0, 100), R.randint(0, 9999)])


def v_who():
    return ch([name, name, v_name, v_email, lambda: "my " + ch(FAM)])()


def v_msg():
    return ch(
        [
            v_sent,
            v_phrase,
            lambda: f"I will be {ch(['late', 'there', 'home'])} at {R.randint(1, 12)}",
            lambda: f"the {ch(NOUNS)} is {w1()}",
            lambda: w1() + " " + w1() + " " + w1(),
        ]
    )()


def v_expr():
    return ch(
        [
            lambda: f"{R.randint(1, 999)} {ch('+-*/')} {R.randint(1, 99)}",
            lambda: f"{R.randint(1, 99)}{ch('+-*/')}{R.randint(1, 99)}",
            lambda: f"({R.randint(1, 99)} + {R.randint(1, 99)}) * {R.randint(1, 9)}",
            lambda: f"{R.randint(1, 99)} {ch(['plus', 'minus', 'times', 'divided by'])} {R.randint(1, 99)}",
        ]
    )()


def v_lang():
    return ch(
        ["German", "French", "Finnish", "Italian", "Spanish", "Dutch", "Greek", "Polish", "Klingon", name(), name()]
    )


def v_room():
    return ch(
        [
            "kitchen",
            "bedroom",
            "garage",
            "hall",
            "attic",
            "bathroom",
            "office",
            "garden",
            "cellar",
            w1(),
            ch(NOUNS),
            w1(),
        ]
    )


def v_unit():
    return ch(
        [
            "kilometres",
            "miles",
            "euros",
            "dollars",
            "pounds",
            "grams",
            "litres",
            "celsius",
            "fahrenheit",
            "minutes",
            "seconds",
            w1(),
            word(),
        ]
    )


INFO = """
weather temperature forecast price population time distance traffic stock status balance schedule rating score level
height weight speed humidity exchange rate timetable opening hours address phone number size owner version news menu
definition capital colour length cost
""".split()
POL = [
    "",
    "",
    "",
    "",
    "Please ",
    "Can you ",
    "Could you ",
    "Would you ",
    "I want you to ",
    "Hey, ",
    "Now ",
    "Could you please ",
    "I would like you to ",
]
END = ["", "", "", "", " please", " for me", " now", ", thanks"]


def S(role, cands, vg, ty=("string",)):
    return (role, cands, vg, ty)


PLACES = "city location place town region area".split()
CON = [
    (
        ["get N", "fetch N", "N", "lookup N", "N info", "check N", "get current N", "find N", "read N"],
        [
            "Get the N PREP a R.",
            "Get the current N PREP a R.",
            "Returns the N PREP the given R.",
            "Look up the N PREP a R",
            "Find out the N PREP a R.",
            "N PREP a R.",
        ],
        [S("a", [*PLACES, "name", "item", "station", "product", "id", "country"], v_place)],
        [
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
        ],
    ),
    (
        ["turn on N", "switch on N", "N on", "enable N", "start N", "activate N"],
        ["Turn on the N in a R.", "Switches the N in a R on.", "Activate the N of a R.", "Turn the N on."],
        [S("a", ["room", "place", "zone", "area", "location"], v_room)],
        [
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
        ],
    ),
    (
        ["turn off N", "switch off N", "N off", "disable N", "stop N", "shut N"],
        ["Turn off the N in a R.", "Switches the N in a R off.", "Stop the N of a R.", "Turn the N off."],
        [S("a", ["room", "place", "zone", "area", "location"], v_room)],
        [
            "!turn off the N in the {a}",
            "!switch off the N in the {a}",
            "!turn the N in the {a} off",
            "N off in the {a}, please",
            "I want the N in the {a} off",
            "!stop the N in the {a}",
            "!switch the {a} N off",
        ],
    ),
    (
        ["set N", "set N level", "change N", "adjust N"],
        ["Set the N in a R.", "Change the N of a R to a value.", "Adjust the N."],
        [
            S("a", ["room", "place", "device", "zone", "name"], v_room),
            S("b", ["value", "level", "degrees", "amount", "percent"], v_int, ("integer", "integer", "string")),
        ],
        [
            "!set the N in the {a} to {b}",
            "!change the N in the {a} to {b}",
            "Make the N in the {a} {b}",
            "!put the N in the {a} at {b}",
            "I want the N in the {a} at {b}",
            "N in the {a} to {b}, please",
            "!adjust the {a} N to {b}",
        ],
    ),
    (
        ["convert N", "convert", "N converter", "to unit"],
        ["Convert a N to another R.", "Converts a value into another R.", "N conversion."],
        [
            S("a", ["amount", "value", "number", "quantity"], v_int, ("integer", "integer", "string")),
            S("b", ["unit", "target", "to", "currency"], v_unit),
        ],
        [
            "!convert {a} to {b}",
            "!convert {a} into {b}",
            "I need {a} converted to {b}",
            "How much is {a} in {b}?",
            "What is {a} in {b}?",
            "{a} in {b}, please",
            "How many {b} are {a}?",
            "!turn {a} into {b}",
        ],
    ),
    (
        ["send N", "N send", "post N", "write N", "deliver N"],
        ["Send a N to someone.", "Sends a N to a person.", "Write a N to a R."],
        [
            S("a", ["to", "recipient", "user", "person", "contact", "receiver"], v_who),
            S("b", ["body", "text", "message", "content"], v_msg),
        ],
        [
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
        ],
    ),
    (
        ["create N", "add N", "new N", "schedule N", "make N", "plan N"],
        ["Create a N.", "Add a N to the calendar.", "Schedule a N on a date.", "Plan a new N."],
        [
            S("a", ["title", "name", "subject", "label", "what"], v_thing),
            S("b", ["date", "day", "when", "time"], v_date),
        ],
        [
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
        ],
    ),
    (
        ["search N", "N search", "find in N", "query N", "lookup in N"],
        ["Search the N.", "Find something in the N.", "Search the N for a R.", "Full text search in the N."],
        [S("a", ["query", "q", "term", "text", "keyword", "phrase"], v_thing)],
        [
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
        ],
    ),
    (
        ["calculate N", "evaluate", "compute", "math", "solve", "calc", "eval expression"],
        ["Evaluate a math R.", "Compute the result of a R.", "Calculate a R", "Does arithmetic."],
        [S("a", ["expression", "formula", "input", "expr", "term"], v_expr)],
        [
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
        ],
    ),
    (
        ["translate", "translate N", "translate to", "N translator"],
        ["Translate text into a language.", "Translates a R.", "Translate a N into another language."],
        [
            S("a", ["text", "phrase", "sentence", "input", "source"], v_thing),
            S("b", ["language", "target", "to", "lang"], v_lang),
        ],
        [
            '!translate "{a}" into {b}',
            "!translate {a} to {b}",
            "How do you say {a} in {b}?",
            "What is {a} in {b}?",
            "!say {a} in {b}",
            "{a} in {b}?",
            "I need {a} translated into {b}",
            "What is the {b} word for {a}?",
            "!translate {a} into {b}",
        ],
    ),
    (
        ["set timer", "start N", "N timer", "set N", "wake", "countdown"],
        ["Set a N for some minutes.", "Starts a N.", "N with a number of minutes."],
        [
            S(
                "a",
                ["minutes", "duration", "length", "time"],
                lambda: R.randint(1, 120),
                ("integer", "integer", "string"),
            )
        ],
        [
            "!set a N for {a} minutes",
            "!start a N of {a} minutes",
            "{a} minutes N, please",
            "N for {a} minutes",
            "I need a N for {a} minutes",
            "!give me a {a} minute N",
            "!wake me in {a} minutes with the N",
        ],
    ),
    (
        ["play N", "start N", "put on N", "stream N"],
        ["Play a N.", "Plays the N with this R.", "Start a N by R."],
        [S("a", ["title", "name", "track", "what", "query"], v_thing)],
        [
            "!play {a}",
            "!play the N {a}",
            "!put on {a}",
            "I want to hear {a}",
            "!start the N {a}",
            "I would like to hear the N {a}",
            "Some {a}, please",
            "!play me {a}",
        ],
    ),
    (
        ["order N", "buy N", "N order", "purchase N"],
        ["Order some N.", "Order items.", "Buy a number of a R.", "Places an order for N."],
        [
            S(
                "a",
                ["quantity", "count", "amount", "number"],
                lambda: R.randint(1, 60),
                ("integer", "integer", "string"),
            ),
            S("b", ["item", "product", "article", "what", "name"], v_thing),
        ],
        [
            "!order {a} {b}",
            "I would like {a} {b}",
            "!buy {a} {b}",
            "Get me {a} {b}",
            "I need {a} {b}",
            "{a} {b}, please",
            "!order {a} of {b}",
            "We need {a} {b}",
        ],
    ),
    (
        ["book N", "reserve N", "get N ticket", "find N"],
        ["Book a N from one place to another.", "Reserve a N.", "N booking."],
        [
            S("a", ["from", "origin", "start", "departure"], v_place),
            S("b", ["to", "destination", "target", "arrival"], v_place),
        ],
        [
            "!book a N from {a} to {b}",
            "I need a N from {a} to {b}",
            "N from {a} to {b}",
            "!reserve a N from {a} to {b}",
            "!find me a N from {a} to {b}",
            "How do I get from {a} to {b} by N?",
            "I want to go from {a} to {b} by N",
            "!get me a N from {a} to {b}",
        ],
    ),
    (
        ["book N", "reserve N", "make N reservation"],
        ["Book a N for a number of people.", "Reserve a N.", "N reservation."],
        [
            S("a", ["name", "place", "where", "restaurant"], v_place),
            S("b", ["people", "guests", "count", "seats"], lambda: R.randint(1, 30), ("integer",)),
            S("c", ["date", "day", "time", "when"], v_date),
        ],
        [
            "!book a N at {a} for {b} people on {c}",
            "!reserve a N at {a} for {b} on {c}",
            "I need a N at {a} for {b} people on {c}",
            "N at {a}, {b} people, {c}",
            "A N for {b} at {a} on {c}, please",
        ],
    ),
    (
        ["delete N", "remove N", "cancel N", "clear N", "close N"],
        ["Delete a N.", "Remove a N by its R.", "Cancel the N with this R."],
        [S("a", ["id", "name", "number", "key", "title"], lambda: ch([v_code, w1, name, v_thing])())],
        [
            "!delete the N {a}",
            "!remove the N {a}",
            "!cancel N {a}",
            "I no longer need the N {a}",
            "!get rid of the N {a}",
            "Delete {a} from my N list",
            "!close the N {a}",
        ],
    ),
    (
        ["remind", "add reminder", "set reminder", "create N"],
        ["Set a reminder.", "Remind the user of something at a time.", "Adds a N."],
        [S("a", ["text", "what", "task", "title"], v_thing), S("b", ["time", "when", "date", "at"], v_date)],
        [
            "Remind me of {a} on {b}",
            "!remind me about {a} at {b}",
            "Do not let me forget {a} on {b}",
            "!set a reminder for {a} at {b}",
            "Reminder: {a}, {b}",
        ],
    ),
    (
        ["open N", "launch N", "show N", "display N", "go to N"],
        ["Open a N.", "Show the N with this R.", "Displays a N."],
        [S("a", ["name", "id", "title", "page", "key"], v_thing)],
        [
            "!open the N {a}",
            "!show me the N {a}",
            "!launch {a}",
            "Where is the N {a}?",
            "I want to see the N {a}",
            "!bring up the N {a}",
            "!display {a}",
        ],
    ),
    (
        ["N V", "V N", "V", "V N now"],
        ["V a N.", "V the N.", "Vs a R", "V something with a R."],
        [S("a", ["name", "target", "id", "value", "item", "key"], lambda: ch([anyv, v_thing])())],
        [
            "!V the N {a}",
            "!V {a}",
            "!V a N called {a}",
            "I need the N {a} Ved",
            "I want to V {a}",
            "Let us V the N {a}",
        ],
    ),
    (
        ["V N", "N V", "V"],
        ["V a N with a R.", "V the N.", "V a number of N."],
        [
            S("a", ["name", "target", "item", "key"], lambda: ch([w1, v_thing, name, v_code])()),
            S("b", ["count", "amount", "size", "level", "steps"], v_int, ("integer", "integer", "string")),
        ],
        ["!V the N {a} {b} times", "!V {a} with {b}", "!V the N {a} at {b}", "V {b} of {a}", "I need {a} Ved by {b}"],
    ),
]
TOK0 = [
    (
        "get_time",
        "Get the current time.",
        ["What time is it?", "Tell me the time.", "What is the time?", "Do you know what time it is?"],
    ),
    ("get_date", "Get the date of today.", ["What day is it today?", "What is the date?", "Which date is it today?"]),
    ("list_N", "List all N.", ["List all N", "Show me all N", "Which N do I have?", "What N are there?"]),
    ("reset_N", "Reset the N.", ["Reset the N", "Please reset the N", "The N needs a reset"]),
]
REALT = [
    ("get_weather", 0, "weather"),
    ("turn_on_light", 1, "light"),
    ("send_email", 5, "email"),
    ("calculate", 8, "math"),
    ("create_event", 6, "event"),
    ("web_search", 7, "web"),
    ("translate_text", 9, "text"),
    ("set_alarm", 10, "alarm"),
    ("set_timer", 10, "timer"),
    ("play_music", 11, "song"),
    ("send_message", 5, "message"),
    ("add_reminder", 16, "reminder"),
]
HOLD = set("tide pollen oven drone locker parcel voucher lantern fountain elevator archive pigeon".split())


def noun():
    r = R.random()
    if r < 0.38:
        n = word()
    elif r < 0.62:
        n = ch(NOUNS)
    elif r < 0.72:
        n = ch(ADJ) + " " + ch(NOUNS)
    else:
        n = ch(GENW)
    return n


def inv_tool(force=None, named=None, N=None):
    """-> tool json, request text, (name,args)"""
    if force is None and named is None and R.random() < 0.05:
        nm, d, us = ch(TOK0)
        N = noun()

        def f(s):
            return s.replace("N", N) if "_N" in nm else s

        nm = re.sub(r"[^a-zA-Z_]", "_", f(nm))
        return (
            jtool(nm, f(d), []),
            ch(us) if "_N" not in nm and "_N" not in d and not any("N" in u for u in us) else f(ch(us)),
            (nm, {}),
        )
    if named is None and force is None and R.random() < 0.14:
        nm0, ci, N = ch(REALT)
    else:
        nm0 = None
        ci = force if force is not None else R.randrange(len(CON))
        N = N or (noun() if ci or R.random() < 0.5 else ch(INFO))
    names, descs, slots, reqs = CON[ci]
    V = ch(VERBS) if R.random() < 0.35 else word()
    prep = ch(["in", "for", "of", "at"])

    def sub(s):
        return re.sub(
            r"\bVs\b",
            V + "s",
            re.sub(r"\bVed\b", V + "ed", re.sub(r"\bV\b", V, re.sub(r"\bN\b", N, s.replace("PREP", prep)))),
        )

    r = R.random()
    nm = nm0 or (
        ident([sub(ch(names))]) if r < 0.72 else ident([lw(), lw()]) if r < 0.86 else ident([sub(ch(names)), lw()])
    )
    inv = R.random() < 0.25
    ps = []
    args = {}
    vals = {}
    seen = set()
    plain = nm0 and R.random() < 0.5
    for role, cands, vg, ty in slots:
        c0 = ch(cands)
        r = R.random()
        while True:
            p = (
                ch(cands[:3])
                if plain
                else c0
                if not inv and r < 0.62
                else ident([c0, ch(["name", "id", "value", "text", "key", lw()])])
                if not inv and r < 0.78
                else ident([lw()] + ([lw()] if R.random() < 0.4 else []))
            )
            if p not in seen:
                break
            r = R.random()
            c0 = ch(cands)
        seen.add(p)
        v = vg()
        t = ch(ty)
        x = ch(["", "", "The " + c0]) if p in cands else "The " + c0
        if plain:
            x = ch(["", x])
        vals[role] = v
        args[p] = int(v) if t == "integer" else str(v)
        ps.append((p, t, x))
    tpl = ch(reqs)
    if tpl[0] == "!":
        pre = ch(POL)
        u = pre + tpl[1:]
        q = "?" if pre.split(" ")[0] in ("Can", "Could", "Would") else ch(["", "."])
    else:
        pre = ""
        u = tpl
        q = ch(["", "."]) if tpl[-1] not in '?,.:"' else ""
    body = cap(sub(u)).format(**vals)
    if pre and q != "?" and R.random() < 0.3 and tpl[0] == "!":
        body += ch(END)
        q = ""
    if q == "." and ("." in str(list(vals.values())[-1])[-1:]):
        q = ""
    if tpl.endswith("{b}") and R.random() < 0.5 and q == ".":
        q = ""
    body = body.rstrip() + q
    # extra boolean / optional explicit parameter
    if R.random() < 0.10 and not nm0:
        bp = ch(["force", "verbose", "urgent", "silent", "recursive", "private", ident([lw()])])
        if bp not in seen:
            b = R.random() < 0.5
            ps.append((bp, "boolean", ""))
            args[bp] = b
            body = body.rstrip(".?") + ch(
                [
                    f", {bp} {'true' if b else 'false'}",
                    f" with {bp} {'true' if b else 'false'}",
                    f" and {bp} = {'true' if b else 'false'}",
                ]
            )
    if len(ps) > 1 and R.random() < 0.2:
        R.shuffle(ps)
        args = {p: args[p] for p, _, _ in ps}
    d = cap(sub(ch(descs)).replace(" R", " " + slots[0][1][0] if ci != 4 else " unit"))
    if R.random() < 0.06 and r < 0.72:
        d = ""
    return jtool(nm, d, ps), body, (nm, args)


def inv_explicit():
    """invented identifiers, request names the tool or its parameters"""
    V = lw() if R.random() < 0.6 else ch(VERBS)
    n = lw()
    nm = ident([V, n]) if R.random() < 0.8 else ident([ch([V, n])] if R.random() < 0.5 else [V, n, lw()])
    ps = []
    seen = set()
    for _ in range(R.choices([1, 2, 3, 4], [38, 34, 18, 10])[0]):
        p = ch(
            [
                lambda: ident([lw()]),
                lambda: ident([lw(), lw()]),
                lambda: ch(
                    [
                        "name",
                        "id",
                        "date",
                        "city",
                        "query",
                        "amount",
                        "text",
                        "title",
                        "user",
                        "email",
                        "color",
                        "size",
                        "path",
                        "url",
                        "message",
                        "number",
                        "location",
                        "start",
                        "end",
                        "count",
                    ]
                ),
                lambda: ch(NOUNS),
            ]
        )()
        if p in seen:
            continue
        seen.add(p)
        ps.append((p, R.choices(["string", "integer", "boolean"], [68, 24, 8])[0], ch(["", "", "The " + p])))
    args = {
        p: (
            ch([True, False])
            if t == "boolean"
            else v_int()
            if t == "integer"
            else (str(v_int()) if R.random() < 0.2 else argval(p, "string"))
        )
        for p, t, _ in ps
    }
    d = ch([f"{V.capitalize()} the {n}.", f"{V.capitalize()} a {n}", f"{V.capitalize()}s {n}.", ""])
    its = list(args.items())

    def st(x):
        return ("true" if x else "false") if isinstance(x, bool) else str(x)

    def j(sep, fm):
        return sep.join(fm(p, st(x)) for p, x in its)

    r = R.random()
    if r < 0.35:
        u = f"{ch(['', 'Please ', 'Can you ', 'Could you ', 'I want you to '])}{V} the {n} with " + j(
            ch([" and ", ", "]), lambda p, x: f"{p} {x}"
        )
    elif r < 0.45:
        u = f"{V.capitalize()} {n}: " + j(", ", lambda p, x: f"{p} {x}")
    elif r < 0.75:
        u = f"{ch(['Use', 'Call', 'Run', 'Please use', 'Invoke'])} {nm} with " + j(
            ch([" and ", ", "]),
            ch([lambda p, x: f"{p} {x}", lambda p, x: f"{p} = {x}", lambda p, x: f"{p} set to {x}"]),
        )
    elif r < 0.85:
        u = f"{ch(['Use', 'Call'])} {nm}: " + j(", ", ch([lambda p, x: f"{p} = {x}", lambda p, x: f"{p}: {x}"]))
    elif r < 0.93:
        u = nm + "(" + j(", ", lambda p, x: f"{p}={x}") + ")"
    else:
        u = f"{V.capitalize()} the {n} " + j(", ", lambda p, x: f"{p}: {x}")
    return jtool(nm, d, ps), cap(u) if r < 0.85 or r > 0.93 else u, (nm, args)


def new_tool():
    return inv_tool() if R.random() < 0.62 else inv_explicit()


def nt2():
    return R.choices([1, 2, 3, 4, 5, 6, 7, 9], [16, 22, 21, 15, 10, 7, 5, 4])[0]


MEMT = ("search_memory", "set_fact", "store_memory", "get_fact")


def toolset(req, n):
    nomem = "_nomem" in req
    ts = [tool_known(k) for k in req if k != "_nomem"]
    names = {t["function"]["name"] for t in ts}
    while len(ts) < n:
        r = R.random()
        t = tool_known(ch(KNOWN)) if r < 0.5 else (new_tool()[0] if r < 0.85 else rand_tool()[0])
        nm = t["function"]["name"]
        if nm in names or (nomem and nm in MEMT):
            continue
        names.add(nm)
        ts.append(t)
    R.shuffle(ts)
    return ts


def d_tool_new():
    k = nt2()
    main = new_tool()
    pool = [main]
    names = {main[2][0]}
    ts = [main[0]]
    while len(ts) < k:
        r = R.random()
        x = (
            new_tool()
            if r < 0.75
            else (tool_known(ch(KNOWN)), None, None)
            if r < 0.92
            else (tool_known("search_memory"), None, None)
        )
        nm = x[0]["function"]["name"]
        if nm in names:
            continue
        names.add(nm)
        ts.append(x[0])
        if x[1]:
            pool.append(x)
    R.shuffle(ts)
    m = [tool_system(ts, ch([*SYS, "", ""]))]
    if R.random() < 0.1:
        a, b = small()
        m += [("user", a), ("assistant", b)]
    others = R.sample(pool[1:], min(len(pool) - 1, R.choices([0, 1, 2], [55, 30, 15])[0]))
    todo = [main, *others]
    R.shuffle(todo)
    for _, u, (nm, a) in todo:
        m += [("user", u), call(nm, a)]
        if R.random() < 0.75:
            o = ch([v_sent, anyv, v_phrase])()
            m += [
                resp(ch([o, o, json.dumps({"result": o}), json.dumps({ident([lw()]): o})])),
                ("assistant", f"The result is: {o}"),
            ]
        else:
            break
    if m[-1][1].startswith("The result") and R.random() < 0.12:
        if "search_memory" not in names:
            m += [("user", question(fact())), ("assistant", DK)]
        else:
            f = fact()
            m += [("user", question(f)), call("search_memory", {"query": f.key})]
    return m


def story():
    return ch(
        ["Let me tell you a story. ", "Here is my day: ", "A long note: ", "I read this: ", "Some text for you: ", ""]
    ) + " ".join(cap(v_sent()).rstrip(".") + "." for _ in range(R.randint(3, 14)))


def lst():
    return ch(["Here is a list: ", "My list: ", "Things I saw: ", "Some words: "]) + ", ".join(
        anyv() if R.random() < 0.4 else w1() for _ in range(R.randint(4, 25))
    )


def d_long(target=None):
    target = target or int(700 * (4.2 ** R.random()))
    goal = target * 2.55
    tooled = R.random() < 0.3
    mem = False
    m = maybe_sys()
    tl = []
    if tooled:
        use = R.sample([k for k in KNOWN if k not in ("get_fact", "set_fact", "store_memory")], 2)
        news = [new_tool() for _ in range(R.randint(0, 2))]
        ts = [tool_known(k) for k in use] + [x[0] for x in news]
        if len({t["function"]["name"] for t in ts}) == len(ts):
            R.shuffle(ts)
            m = [tool_system(ts, ch([*SYS, "", ""]))]
            tl = use
            mem = "search_memory" in use
        else:
            tooled = False
    told = []
    ks = set()
    vs = set()
    heavy = R.random()

    def newf():
        while True:
            f = fact()
            if sig(f) in ks or f.key in ks or f.v in vs:
                continue
            ks.add(sig(f))
            ks.add(f.key)
            vs.add(f.v)
            return f

    size = sum(len(t) + 14 for _, t in m)
    nf = R.choices([1, 2, 4, 8, 16, 60], [10, 12, 18, 22, 20, 18])[0]

    def add(*x):
        nonlocal m, size
        m += list(x)
        size += sum(len(t) + 14 for _, t in x)

    def ask(f):
        add(("user", question(f)), ("assistant", cap(f.ans)))

    for _ in range(min(nf, R.randint(1, 3))):
        f = newf()
        told.append(f)
        add(("user", stmt(f)), ("assistant", ack(f)))
    while size < goal:
        r = R.random()
        if r < 0.30 and len(told) < nf:
            g = [newf() for _ in range(R.choices([1, 2, 3, 5], [68, 18, 9, 5])[0])]
            told += g
            if len(g) == 1:
                add(("user", stmt(g[0])), ("assistant", ack(g[0])))
            else:
                add(
                    ("user", " ".join(cap(f.clause) + "." for f in g)),
                    ("assistant", ch(["Okay, I will remember that.", "Got it."])),
                )
        elif r < 0.48:
            a, b = distract()
            add(("user", a), ("assistant", b))
        elif r < 0.48 + 0.22 * heavy + 0.05:
            add(("user", ch([story, story, lst])()), ("assistant", ch(["I see.", "Interesting.", "Okay."])))
        elif r < 0.80:
            ask(told[0] if R.random() < 0.2 else ch(told[: max(1, len(told) // 3)]) if R.random() < 0.45 else ch(told))
        elif r < 0.84:
            x = absent(told)
            if not mem:
                add(("user", question(x)), ("assistant", DK))
            else:
                add(
                    ("user", question(x)),
                    call("search_memory", {"query": x.key}),
                    resp(ch(["", "[]", "No results"])),
                    ("assistant", DK),
                )
        elif tooled:
            n = ch([k for k in tl if k != "search_memory"] or ["x"])
            if n == "x":
                continue
            u, a, rs, an = known_req(n)
            add(("user", u), call(n, a), resp(rs), ("assistant", an))
        else:
            a, b = small()
            add(("user", a), ("assistant", b))
    for _ in range(R.randint(4, 9)):
        ask(told[0] if R.random() < 0.3 else ch(told))
        if R.random() < 0.1:
            add(
                ("user", question(absent(told))),
                *([("assistant", DK)] if not mem else [call("search_memory", {"query": fact().key})]),
            ) if not mem else None
    return m


def d_recall2():
    return d_recall(8)


KINDS = [
    (d_small, 4),
    (d_echo, 5),
    (d_recall2, 24),
    (d_unknown, 9),
    (d_tool_known, 14),
    (d_tool_rand, 5),
    (d_tool_new, 30),
    (d_mem, 11),
]
EARLY = KINDS
LONG = [(d_long, 1)]
if __name__ == "__main__":
    for k, _ in KINDS:
        print("-----", k.__name__)
        print(render(k()))
