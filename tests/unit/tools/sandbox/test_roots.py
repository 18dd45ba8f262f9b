"""Where paths lead: no path, and no swap of a folder during a walk, reaches anything outside of the roots."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import examples

from shepherd.tools.base import ToolError
from shepherd.tools.sandbox.folder import Folder, NotAFile, kind_of
from shepherd.tools.sandbox.roots import LONGEST_PATH, MissingPath, NotAFolder, OutsideRoots, Roots, is_below, printable


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """`project` with a few files and links, and `outside` with a secret."""
    top = tmp_path.resolve()
    (top / "project/src").mkdir(parents=True)
    (top / "project/src/main.py").write_text("print()\n")
    (top / "project/notes.txt").write_text("notes\n")
    (top / "outside").mkdir()
    (top / "outside/secret").write_text("secret\n")
    for name, target in {
        "to_file": "notes.txt",
        "to_folder": "src",
        "to_absolute": str(top / "project/src"),
        "round_about": "../project/src/main.py",
        "to_secret": "../outside/secret",
        "to_outside": str(top / "outside"),
        "to_nothing": "nowhere/at/all",
        "loop": "pool",
        "pool": "loop",
    }.items():
        (top / "project" / name).symlink_to(target)
    return top


@pytest.fixture
def roots(top: Path) -> Roots:
    return Roots.of([str(top / "project")], str(top / "project"))


def lead(roots: Roots, path: str) -> str:
    with roots.find(path) as place:
        place.stat()
        return place.path


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("notes.txt", "project/notes.txt"),
        ("./src//main.py", "project/src/main.py"),
        ("src/../notes.txt", "project/notes.txt"),
        ("../project/notes.txt", "project/notes.txt"),
        ("src/../../project/src/main.py", "project/src/main.py"),
        ("to_file", "project/notes.txt"),
        ("to_folder/main.py", "project/src/main.py"),
        ("to_folder/../notes.txt", "project/notes.txt"),
        ("to_absolute/main.py", "project/src/main.py"),
        ("round_about", "project/src/main.py"),
        (".", "project"),
        ("", "project"),
        ("src/..", "project"),
        ("src/", "project/src"),
    ],
)
def test_a_path_leads_to_what_is_inside_through_dots_and_links(top: Path, roots: Roots, path: str, where: str) -> None:
    assert lead(roots, path) == str(top / where)
    assert lead(roots, f"{top}/project/{path}") == str(top / where)


def test_an_absolute_path_may_go_through_a_link_above_the_roots(top: Path, roots: Roots) -> None:
    (top / "alias").symlink_to(top / "project")
    assert lead(roots, f"{top}/alias/src/main.py") == str(top / "project/src/main.py")
    assert lead(roots, f"{top}/alias") == str(top / "project")
    with roots.find(f"{top}/alias/to_secret", follow=False) as place:
        assert place.path == str(top / "project/to_secret")


@pytest.mark.parametrize(
    "path",
    [
        "..", "../outside/secret", "src/../../outside/secret", "/etc/passwd", "/", "//etc/passwd", "/./etc/passwd",
        "to_secret", "to_outside", "to_outside/secret", "to_outside/nothing", "to_outside/../outside/secret",
        "to_absolute/../../outside/secret", "/proc/self/cwd/../outside", "/proc/self/environ", "/dev/zero", "~", "~/x",
        "../project_2/x",
    ],
)  # fmt: skip
def test_what_is_outside_is_refused_without_a_hint_whether_it_exists(top: Path, roots: Roots, path: str) -> None:
    (top / "project_2").mkdir()
    (top / "project_2/x").write_text("")
    for make in (False, True):
        with pytest.raises(OutsideRoots) as refusal, roots.find(path, make=make):
            raise AssertionError
        assert refusal.value.message == (
            f'"{path}" is outside the folders that tools may use: {top}/project (the current folder, called "."); '
            "use a path inside them"
        )
    assert sorted(each.name for each in top.iterdir()) == ["outside", "project", "project_2"]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("a\0b", "NUL character"),
        ("x" * 300, "255 bytes"),
        ("x/" * LONGEST_PATH, f"it may have {LONGEST_PATH:,}"),
        ("half \ud800", "half a character"),
        ("file:///etc/passwd", "give the plain path"),
        ("loop", "in a circle"),
    ],
)
def test_what_is_no_path_is_refused_in_a_sentence(roots: Roots, path: str, sentence: str) -> None:
    with pytest.raises(ToolError, match=sentence):
        lead(roots, path)


@pytest.mark.parametrize(
    "path", ["%2e%2e/%2e%2e/etc/passwd", "．．/x", "․․/etc", "..\u200b/x", "..%00/x", "..\\..\\etc", "...", "~root/x"]
)
def test_look_alikes_are_names_like_any_other(roots: Roots, path: str) -> None:
    with pytest.raises(MissingPath):
        lead(roots, path)


def refusal(roots: Roots, path: str) -> str:
    with pytest.raises(MissingPath) as missing:
        lead(roots, path)
    return missing.value.message


def test_a_wrong_path_is_answered_with_what_there_is(top: Path, roots: Roots) -> None:
    held = "to_absolute, to_file, to_folder, to_nothing, to_outside, to_secret"
    assert refusal(roots, "current directory") == (
        'there is no "current directory". The current folder, called ".", holds: loop, notes.txt, pool, round_about, '
        f"src/, {held}"
    )
    assert refusal(roots, "src/mian.py") == (
        'there is no "src/mian.py"; did you mean "src/main.py"? The folder "src" holds: main.py'
    )
    assert 'did you mean "src/main.py"?' in refusal(roots, "main.py")  # in another folder
    assert 'did you mean "notes.txt"?' in refusal(roots, "Notes.TXT")
    assert refusal(roots, "notes.txt/x") == 'there is no "notes.txt/x": "notes.txt" is a file and not a folder'
    with pytest.raises(NotAFolder):
        lead(roots, "notes.txt/x")
    for number in range(30):
        (top / f"project/src/{number:02}").write_text("")
    assert refusal(roots, "src/zzz").endswith("18, 19 and 11 more")
    (top / "project/empty").mkdir()
    assert refusal(roots, "empty/x").endswith('The folder "empty" is empty or cannot be listed')
    assert 'did you mean "src/main.py"?' in refusal(roots, "src\\main.py")
    assert 'did you mean "src/main.py"?' in refusal(roots, '"lib/main.py" ')
    with pytest.raises(OutsideRoots, match=r'use a path inside them, such as "src/main\.py"$'):
        lead(roots, "/main.py")


def test_several_roots_lead_to_each_other_and_the_innermost_wins(top: Path) -> None:
    (top / "project/link").symlink_to("../outside/secret")
    roots = Roots.of([str(top / "project"), str(top / "outside"), str(top / "project/src")], str(top / "project"))
    assert lead(roots, "link") == str(top / "outside/secret")
    assert lead(roots, "../outside/secret") == str(top / "outside/secret")
    assert lead(roots, "src/../notes.txt") == str(top / "project/notes.txt")
    with pytest.raises(OutsideRoots):
        lead(roots, "..")


def test_a_root_of_everything_takes_everything_but_keys(top: Path) -> None:
    roots = Roots.of(["/"], str(top))
    assert lead(roots, "/etc/../" * 3 + str(top)[1:] + "/outside/secret") == str(top / "outside/secret")
    assert lead(roots, "../" * 100) == "/"
    for path in ("/proc/self/environ", "/proc/thread-self/environ", f"/proc/{os.getpid()}/task/{os.getpid()}/mem"):
        with pytest.raises(ToolError, match="permission denied"), roots.find(path) as place:
            os.close(place.folder.open(place.name))


def test_the_working_folder_is_the_base_where_it_is_inside(top: Path) -> None:
    project, outside = str(top / "project"), str(top / "outside")
    assert Roots.of([outside], project).base == outside
    assert Roots.of([str(top), outside], project).base == project
    assert Roots.of([], project) == Roots((project,), project)
    assert Roots.of(None).base == os.path.realpath(".")
    roots = Roots.of([str(top)], project)
    assert [roots.shown(path) for path in (project, project + "/a/b", outside)] == [".", "a/b", outside]
    assert roots.directory("../outside") == outside
    with pytest.raises(ToolError, match="is a file, not a folder"):
        roots.directory("notes.txt")


def test_a_link_that_leads_to_nothing_inside_can_be_filled(top: Path, roots: Roots) -> None:
    with roots.find("to_nothing", make=True) as place:
        place.folder.replace(place.name, b"new")
    assert (top / "project/nowhere/at/all").read_bytes() == b"new"


def test_nothing_stays_open(roots: Roots) -> None:
    def try_all() -> None:
        for path in (".", "src/main.py", "to_absolute/..", "nothing/at/all", "to_secret", "loop", "notes.txt/x"):
            try:
                lead(roots, path)
            except ToolError:
                continue

    try_all()
    before = sorted(os.listdir("/proc/self/fd"))
    try_all()
    assert sorted(os.listdir("/proc/self/fd")) == before


PARTS = st.sampled_from(
    ["..", ".", "src", "main.py", "notes.txt", "to_file", "to_folder", "to_absolute", "to_secret", "to_outside", "loop",
     "outside", "secret", "project", "", "x", "round_about", "to_nothing", "\0", "%2e%2e", "～"]
)  # fmt: skip


@settings(deadline=None, max_examples=examples(500), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(PARTS, max_size=8), absolute=st.booleans(), follow=st.booleans())
def test_no_path_of_any_parts_leads_outside(
    top: Path, roots: Roots, parts: list[str], absolute: bool, follow: bool
) -> None:
    path = "/".join(parts)
    try:
        with roots.find(f"{top}/{path}" if absolute else path, follow=follow) as place:
            assert is_below(place.path, roots.base)
            status = place.look()
            # What was opened is what the path says: no link has been followed on the way.
            assert os.path.realpath(os.path.dirname(place.path)) == os.path.dirname(place.path)
            if follow and status is not None:
                assert kind_of(status) != "symlink"
    except ToolError:
        return


# -- swapped meanwhile ------------------------------------------------------------------------------------------------


def test_a_folder_that_is_swapped_for_a_link_after_it_was_opened_is_still_that_folder(top: Path, roots: Roots) -> None:
    with roots.find("src/new.txt") as place:
        (top / "project/src").rename(top / "project/moved")
        (top / "project/src").symlink_to(top / "outside")
        place.folder.replace("new.txt", b"inside")
        with pytest.raises(FileNotFoundError):
            place.folder.open("secret")
        with pytest.raises(FileNotFoundError):
            place.folder.unlink("secret")
    assert (top / "project/moved/new.txt").read_bytes() == b"inside"
    assert sorted(os.listdir(top / "outside")) == ["secret"]


def test_a_root_that_is_swapped_for_a_link_is_not_followed(top: Path, roots: Roots) -> None:
    (top / "project").rename(top / "old")
    (top / "project").symlink_to("outside")
    with pytest.raises(ToolError), roots.find("secret") as place:
        os.close(place.folder.open(place.name))


def test_a_file_that_is_swapped_for_a_link_is_not_opened_through_it(top: Path, roots: Roots) -> None:
    with roots.find("notes.txt") as place:
        (top / "project/notes.txt").unlink()
        (top / "project/notes.txt").symlink_to("../outside/secret")
        with pytest.raises(NotAFile, match="is a symlink"):
            place.folder.open("notes.txt")
    with roots.find("to_file", follow=False) as place:
        place.folder.unlink("to_file")
    assert (top / "outside/secret").read_text() == "secret\n"


# -- the folder itself ------------------------------------------------------------------------------------------------


def test_what_is_no_file_is_neither_opened_nor_replaced(top: Path) -> None:
    os.mkfifo(top / "fifo")
    with Folder.top(str(top)) as folder:
        for name, kind in {"fifo": "FIFO", "outside": "directory"}.items():
            with pytest.raises(NotAFile, match=f"is a {kind}, not a file"):
                folder.open(name)
            with pytest.raises(NotAFile, match=f"is a {kind}, not a file"):
                folder.replace(name, b"")
        with pytest.raises(NotADirectoryError):
            folder.child("fifo")
    assert sorted(os.listdir(top)) == ["fifo", "outside", "project"]
    with Folder.top("/dev") as devices, pytest.raises(NotAFile, match="is a device"):
        devices.open("zero")


def test_a_replaced_file_keeps_its_mode_and_other_names_keep_the_old_content(top: Path) -> None:
    path = top / "outside/secret"
    os.link(path, top / "project/hard")
    path.chmod(0o4750)
    with Folder.top(str(top / "project")) as folder:
        assert folder.replace("hard", b"new") is False
        assert folder.replace("fresh", b"fresh") is True
    assert (top / "project/hard").read_bytes() == b"new"
    assert path.read_text() == "secret\n"
    assert stat.S_IMODE((top / "project/hard").stat().st_mode) == 0o750  # not as another user any more
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((top / "project/fresh").stat().st_mode) == 0o666 & ~umask


def test_a_write_that_fails_leaves_the_old_content_and_no_draft(top: Path) -> None:
    with Folder.top(str(top / "project")) as folder:
        before = sorted(os.listdir(top / "project"))
        with pytest.raises(OSError, match="too long"):
            folder.replace("x" * 256, b"new")
        with pytest.raises(TypeError):
            folder.replace("notes.txt", "no bytes")  # type: ignore[arg-type]
    assert sorted(os.listdir(top / "project")) == before
    assert (top / "project/notes.txt").read_text() == "notes\n"


def test_a_closed_folder_does_nothing(top: Path) -> None:
    with Folder.top(str(top / "project")) as folder:
        pass
    with pytest.raises(OSError, match="Bad file"):
        folder.look("notes.txt")
    with pytest.raises(OSError, match="Bad file"):
        folder.replace("notes.txt", b"")
    folder.close()


def test_names_are_shown_on_one_line_and_drive_no_terminal() -> None:
    assert printable("naïve 日本 🐑") == "naïve 日本 🐑"
    assert printable("a\nb\x1b[31m\u202e\udcff") == "a\\nb\\x1b[31m\\u202e\\udcff"
