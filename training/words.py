"""The words that conversations are made of. Words that a demonstration should not say are not here."""

NOUNS = tuple(
    """
account airport album allergy animal anniversary apple aunt author bag bakery banana band bank battery bed bicycle
birthday boat book boot boss box branch bread bridge brother budget bug building bus cabin cake camera car card cat
chair cheese cherry city class clinic clock club coach coat code coffee colleague colour contract country course
cousin database daughter deadline dentist desk doctor dog door drink drone drum engine exam experiment father film
flight floor food forest friend game garden gate glove goldfish guitar gym hamster hat hobby holiday horse hotel house
husband invoice island jacket juice key kitchen lab lake lamp language laptop lawyer lemon lesson letter library
licence lock locker magazine manager market medicine meeting mother motor mountain movie museum neighbour network
newspaper number office orange order package parcel parrot party passport password pasta patient phone piano pizza
planet printer project puzzle rabbit radio recipe release report restaurant rice ring river robot rocket room router
salad sample satellite scarf school sensor server shirt shoe shop sister snake sofa son song soup sport sprint star
station store street student table tablet task tea teacher team telescope thesis ticket token tower train trip truck
turtle umbrella uncle version village violin wallet watch wedding wife wifi window
""".split()
)
ADJECTIVES = tuple(
    """
red blue green old new big small secret main spare favourite second first last next weekly monthly local remote
private public shared backup front back upper lower north south east west silver golden wooden broken lucky quiet
noisy tiny huge early late fast slow cold warm dark bright home work summer winter spring autumn
""".split()
)
VERBS = tuple(
    """
archive book calculate call cancel check close compute convert copy count create delete disable draw email enable
fetch find get list load lock lookup measure merge move notify open order pause play plot print read rename resize
restore rotate save scan schedule search send set sort split start stop track translate unlock update write
""".split()
)
COMMON = tuple(
    """
time year people way day man thing woman life child world hand part place week company system program question work
government night point home water mother area money story fact month lot right study eye job word business issue side
kind head service friend power hour line end member law community name president minute idea kid information nothing
ago lead social understand whether watch together follow around parent face anything public already speak others level
allow office spend door health person art sure history party within grow result open change morning walk reason low
win research early food moment himself air force offer enough education across although remember foot boy maybe toward
able age policy everything love process music including consider appear actually buy probably human wait serve market
send expect sense build stay nation plan cut college interest course someone experience behind reach local remain
effect use yeah suggest class control raise care perhaps little late hard field else pass former sell major sometimes
require along development themselves report role better economic effort decide rate strong possible heart show leader
light voice wife whole mind finally pull return free price less according decision explain son hope even develop view
relationship carry town road drive arm true difference thank receive value international building action full model
join season society because tax director position player agree especially record pick wear paper special space ground
form support event official whose matter everyone center couple site project base activity star table need court
produce eat teach oil half situation easy cost industry figure street image itself phone either data cover quite
picture clear practice piece land recent describe product doctor wall patient worker news test movie certain north
personal simply third technology catch step baby computer type attention draw film tree source red nearly organization
choose cause hair century evidence window difficult listen soon culture billion chance brother energy period summer
realize hundred available plant likely opportunity term short letter condition choice single rule daughter
administration south husband floor campaign material population economy medical church close thousand current fire
future involve defense anyone increase security bank myself certainly west sport board seek per subject officer
private rest behavior deal performance throw top quickly past goal second bed order author fill represent focus
foreign upon agency push nature color recently store reduce sound note fine near movement page enter share common poor
natural concern series significant similar hot language usually response rise animal factor decade article east save
seven artist scene stock career despite central eight thus treatment beyond happy exactly protect approach size dog
fund serious occur media ready sign thought list individual simple quality pressure accept answer resource identify
left meeting determine prepare whatever success argue cup particularly amount ability staff recognize indicate
character growth degree wonder herself region television box training pretty trade election everybody physical lay
general feeling standard bill message outside arrive analysis benefit forward lawyer present section environmental
glass skill sister professor operation financial stage compare authority miss design sort act ten knowledge station
blue strategy clearly discuss indeed truth song example check environment leg dark various rather laugh guess
executive prove entire rock forget claim remove manager help enjoy network legal cold final main science green memory
card above seat cell establish nice expert spring firm radio visit management avoid imagine tonight huge ball finish
yourself theory impact respond statement maintain charge popular traditional onto reveal direction employee cultural
contain peace apply measure wide shake fly interview manage chair fish particular camera structure perform bit weight
suddenly discover candidate production treat trip evening affect inside conference unit style adult range mention deep
edge specific writer necessary throughout challenge shoulder institution middle sea dream beautiful property instead
improve stuff detail method magazine hotel reflect heavy bag marriage tough sing surface purpose exist pattern whom
agent owner machine gas ahead generation commercial address item reality coach yard total tend investment discussion
finger garden notice collection modern task partner positive civil kitchen consumer budget wish painting scientist
safe agreement capital mouth nor newspaper responsibility smile attorney score account interesting audience rich
dinner western relate travel debate prevent citizen majority none front born admit senior assume wind key professional
mission fast customer speech successful option participant southern fresh eventually forest video global reform access
restaurant judge publish relation release bird opinion credit critical corner version safety neighborhood truck engine
silver copper maple cedar falcon otter badger raven lotus ember comet nebula quartz marble velvet canyon harbor meadow
thunder willow pepper ginger saffron basil walnut almond cocoa biscuit waffle pickle muffin cookie noodle pumpkin
tiger panda koala lion wolf bear fox eagle owl
""".split()
)
"""Frequent English words, and some that are rare."""
FIRST_NAMES = tuple(
    """
Ada Adam Aisha Alan Alex Alice Amir Amy Ana Anders Andrea Ann Anna Anton Ari Ben Bob Bruno Carla Carlos Carmen Chen
Chris Clara Dan Daniel David Diana Elena Eli Ella Emil Emma Eric Erika Eva Felix Finn Frank Fred George Grace Hana
Hannah Harry Helen Henry Hugo Ian Ida Igor Ines Isabel Ivan Jack Jan Jane Jean Jens Joan Joe John Jonas Jose Julia Jun
Karen Karl Kate Kenji Kim Lara Laura Lea Leo Lena Lily Linda Lisa Liz Louis Lucas Lucy Luis Luke Maria Mark Marta
Martin Mary Mateo Max Maya Mia Mike Mina Mira Nadia Nick Nils Nina Noah Nora Olga Oliver Omar Oscar Otto Paul Peter
Priya Rachel Ravi Rita Rob Rosa Ruth Sam Sara Sofia Sven Tara Tim Tom Tina Uma Vera Victor Wei Yara Yuki Zoe Rex Bella
Luna Rocky Milo Biscuit Shadow Coco
""".split()
)
CITIES = tuple(
    """
Amsterdam Athens Berlin Bern Bogota Boston Brussels Cairo Chicago Copenhagen Dakar Delhi Denver Dublin Geneva Graz
Hamburg Hanoi Helsinki Istanbul Kyoto Lagos Leeds Lima Lisbon London Lyon Madrid Manila Milan Montreal Munich Nairobi
Naples Oslo Osaka Paris Porto Prague Quito Riga Rome Seattle Seoul Sofia Stockholm Sydney Tallinn Tokyo Toronto Turin
Utrecht Vienna Warsaw York Zurich
""".split()
)
FILES = tuple(
    """
README.md notes.txt todo.txt todo.md main.py app.py index.html style.css config.yaml config.toml settings.json
package.json pyproject.toml Makefile Dockerfile requirements.txt setup.py data.csv report.md draft.md hello.py
hello.txt test.py test.txt log.txt server.log error.log shopping.txt list.txt ideas.md recipe.md budget.csv users.csv
script.sh run.sh utils.py CHANGELOG.md LICENSE letter.txt poem.txt docs/guide.md docs/index.md src/main.py src/app.py
src/utils.py tests/test_app.py data/users.json data/sales.csv logs/app.log notes/today.md config/app.toml
""".split()
)
"""Names as people's folders have them."""
FOLDERS = tuple(
    """
src docs tests data logs notes config scripts build assets images lib bin .github examples . .. ~ /tmp /etc /var/log
/home
""".split()
)
FAMILY = tuple(
    """
brother sister mother father uncle aunt cousin daughter son wife husband boss teacher neighbour dentist doctor lawyer
coach manager friend grandmother grandfather flatmate landlord colleague niece nephew plumber
""".split()
)
PETS = (
    *"dog cat hamster parrot rabbit horse goldfish turtle snake ferret pony budgie kitten puppy".split(),
    "guinea pig",
)
FAVOURITES = tuple(
    """
colour number animal food drink city country language movie author song band sport game book hobby cake fruit season
flower tea singer tree
""".split()
)
UNITS = tuple(
    """
euros dollars pounds kg km metres hours minutes days degrees people pages
""".split()
)
MONTHS = tuple(
    """
January February March April May June July August September October November December
""".split()
)
DAYS = tuple(
    """
Monday Tuesday Wednesday Thursday Friday Saturday Sunday
""".split()
)
ONSETS = tuple(
    """
b bl br c ch cl cr d dr f fl fr g gl gr h j k kl kr l m n p ph pl pr qu r s sc sh sk sl sm sn sp st str sw t th tr v w
wh y z
""".split()
)
"""Of syllables; they may be empty, as may the ends."""
VOWELS = tuple(
    """
a e i o u ai ea ee ie oa oo ou au ei y ia
""".split()
)
CODAS = tuple(
    """
b ck d f g l ll m n nd ng nk nt p r rd rk rn rt s ss st sh t th tt v x z ch ft lt mp
""".split()
)
NOT_IN_WORDS = (
    r"fuck|fuk|shit|shi?te|cunt|kunt|tits?$|dick|cock|coc?k|nig|fag|rape|slut|whor|piss|porn|anus|naz"
    r"i|sex|cum|kill|puss|ass$|twat|hoe|tard|penis|dyk|kyk|spic|boob|wank|poo|crap|klan"
)
"""Parts that no invented word may have."""
