"""The chat in a real terminal emulator (tmux): what is typed goes in as keys, what is looked at is the screen."""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.in_time import becomes_true
from tests.scripted_service import ScriptedService, saying

if TYPE_CHECKING:
    from tests.process.cli.test_terminal import Listening
    from tests.unit.cli.conftest import Home

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux"),
]

SETTINGS = """\
set -g history-limit 20000
set -g status off
set -g default-terminal screen-256color
set -sg escape-time 0
"""

AT_THE_PROMPT = r"(?m)^> *\n\S.* · .*\s*\Z"
"""An empty line, and the status line below it."""


class Pane:
    """One program in one terminal. Waiting is for what the program writes, never for a time to pass."""

    def __init__(self, folder: Path, timeout_s: float) -> None:
        """`folder`: for the socket; its path must be short, of at most 100 bytes."""
        self._folder = folder
        self._timeout_s = timeout_s
        self._told = -1

    @contextmanager
    def running(self, *command: str, cwd: Path, width: int, height: int) -> Iterator[Pane]:
        """The program waits for its reader."""
        (self._folder / "settings").write_text(SETTINGS)
        for name in ("told", "gate"):
            os.mkfifo(self._folder / name)
        line = f"trap : INT HUP; read _ < {shlex.quote(str(self._folder / 'gate'))}; {shlex.join(command)}"
        line += '; echo "[left $?]"; read _'
        size = ["-x", str(width), "-y", str(height)]
        try:
            self.tmux(
                "-f", str(self._folder / "settings"), "new-session", "-d", *size, "-c", str(cwd), "sh", "-c", line
            )
            self.tmux("pipe-pane", f"exec cat > {shlex.quote(str(self._folder / 'told'))}")
            self._told = os.open(self._folder / "told", os.O_RDONLY)
            (self._folder / "gate").write_text("go\n")
            yield self
        finally:
            if self._told >= 0:
                os.close(self._told)
            programs = self._programs()
            for program in programs:  # without its terminal, one that asks something would go on with "no"
                with suppress(psutil.NoSuchProcess):
                    program.kill()
            subprocess.run([*self._tmux, "kill-server"], capture_output=True, check=False)
            psutil.wait_procs(programs, self._timeout_s)  # they still write into folders that are removed next

    def _programs(self) -> list[psutil.Process]:
        command = [*self._tmux, "list-panes", "-a", "-F", "#{pane_pid}"]
        shells = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
        found = list[psutil.Process]()
        for shell in shells:
            with suppress(psutil.NoSuchProcess):
                found += psutil.Process(int(shell)).children(recursive=True)
        return found

    @property
    def _tmux(self) -> list[str]:
        return ["tmux", "-S", str(self._folder / "s")]

    def tmux(self, *words: str) -> str:
        done = subprocess.run(
            [*self._tmux, *words], capture_output=True, text=True, check=False, timeout=self._timeout_s
        )
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def types(self, text: str) -> None:
        """Keys, one for each character."""
        self.tmux("send-keys", "-l", "--", text)

    def presses(self, *keys: str) -> None:
        """Keys by their names, such as `Enter`, `Tab`, `C-c`."""
        self.tmux("send-keys", *keys)

    def enters(self, text: str, pattern: str) -> str:
        """A line with Enter behind it; the screen as soon as the pattern is on it."""
        self.types(text)
        self.presses("Enter")
        return self.waits_for(pattern)

    def pastes(self, text: str) -> None:
        """As from the clipboard: in brackets, where the program wants that."""
        (self._folder / "clip").write_text(text)
        self.tmux("load-buffer", str(self._folder / "clip"))
        self.tmux("paste-buffer", "-p", "-r")

    def resizes(self, width: int, height: int) -> None:
        self.tmux("resize-window", "-x", str(width), "-y", str(height))

    def shows(self, *, history: bool = False, colours: bool = False) -> str:
        """The screen, or everything that was ever on it; wrapped lines are joined."""
        how = [*(["-S", "-"] if history else []), *(["-e"] if colours else [])]
        return self.tmux("capture-pane", "-p", "-J", *how).rstrip() + "\n"

    def waits_for(self, pattern: str, *, history: bool = False) -> str:
        """The screen as soon as the pattern is on it."""
        deadline = time.monotonic() + self._timeout_s
        while not re.search(pattern, screen := self.shows(history=history)):
            assert time.monotonic() < deadline, f"{pattern!r} did not appear on\n{screen}"
            assert "[left " not in screen, f"the program ended before {pattern!r} appeared on\n{screen}"
            self._listens(deadline)
        return screen

    def waits_for_the_end(self) -> int:
        """The exit status; 128 and the signal that has ended it."""
        return int(re.findall(r"\[left (\d+)\]", self.waits_for(r"\[left \d+\]"))[-1])

    def sends(self, number: int) -> None:
        """A signal to the program."""
        shell = psutil.Process(int(self.tmux("display-message", "-p", "#{pane_pid}")))
        (program,) = shell.children()
        program.send_signal(number)

    def _listens(self, deadline: float) -> None:
        """Until something is written."""
        ready, _, _ = select.select([self._told], [], [], max(0.0, deadline - time.monotonic()))
        if ready:
            os.read(self._told, 65_536)


Opened = Callable[..., AbstractContextManager[Pane]]


@pytest.fixture
def opened(home: Home) -> Opened:
    """`with opened("--flag", width=60) as pane:` - Shepherd in a terminal, at its first prompt or `at` another text."""

    @contextmanager
    def run(
        *arguments: str, width: int = 100, height: int = 30, at: str = r"(?m)^>( |$)", **env: str
    ) -> Iterator[Pane]:
        settings: dict[str, str] = {name: home.env[name] for name in ("HOME", "XDG_CACHE_HOME", "CI")} | env
        unset = [
            word
            for name in ("NO_COLOR", "COLUMNS", "LINES", "XDG_DATA_HOME", "XDG_CONFIG_HOME")
            for word in ("-u", name)
        ]
        command = ["env", *unset, *(f"{name}={value}" for name, value in settings.items()), *home.command, *arguments]
        with tempfile.TemporaryDirectory(prefix="pane-") as folder:
            pane = Pane(Path(folder), home.timeout_s)
            with pane.running(*command, cwd=home.folder, width=width, height=height):
                pane.waits_for(at)
                yield pane

    return run


def through(home: Home, port: int) -> tuple[str, str, str]:
    """Options with which a server on this port answers instead of a model here; it reads a long prompt at once."""
    address = f'type = "openai_compat"\nbase_url = "http://127.0.0.1:{port}/v1"\nn_ctx = 8192\n'
    (home.folder / "shepherd.toml").write_text(f"[providers.far]\n{address}")
    return "-m", "far/fake", "--notools"


def prompts(screen: str) -> list[str]:
    """The lines that were typed."""
    return [line[2:].rstrip() for line in screen.splitlines() if line.startswith("> ")]


# -- typing -----------------------------------------------------------------------------------------------------------


def test_commands_and_their_arguments_are_completed(home: Home, opened: Opened) -> None:
    (home.folder / "notes.txt").write_text("The llama is called Dolly.\n")
    with opened("--temperature", "0", "--notools") as pane:
        pane.types("/he")
        pane.waits_for(r"/help +Show this list, or more")
        pane.presses("Tab", "Enter")
        pane.waits_for("Ctrl-C stops an answer")
        pane.types("/help stat")
        pane.presses("Tab")
        pane.waits_for(r"(?m)^> /help stats")
        pane.presses("Enter")
        pane.waits_for(r"(?m)^Show the tokens and times of the answers")
        pane.types("What is in @not")
        pane.waits_for("@notes.txt")
        pane.presses("Tab")
        pane.waits_for(r"(?m)^> What is in @notes.txt")
        pane.presses("Enter")
        screen = pane.waits_for(r"/4096")
        assert "> What is in @notes.txt" in screen
        pane.enters("/export talk.json", "Saved 2 messages")
        pane.presses("C-d")
        assert pane.waits_for_the_end() == 0
    assert "The llama is called Dolly." in (home.folder / "talk.json").read_text()


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(("width", "height"), [(60, 24), (80, 24), (60, 7)])
def test_the_menu_is_narrowed_by_typing_and_fits_the_terminal(opened: Opened, width: int, height: int) -> None:
    with opened("--notools", width=width, height=height) as pane:
        pane.types("/")
        pane.waits_for(r"(?m)^› /help +Show this list, or more about one command\.")
        screen = pane.waits_for(r"(?m)^  \d+/\d+, the arrow keys show the others")
        assert all(len(line) < width for line in screen.splitlines() if line[:2] in {"  ", "› "}), screen
        pane.presses("Down", "Down")
        pane.waits_for(r"(?m)^› /undo")
        pane.types("ctx")
        pane.waits_for(r"(?m)^› /context +Show the content of the context, turn by turn\.$")
        pane.presses("Escape")
        pane.waits_for(r"(?m)^> /ctx *\n(?!›)")
        pane.presses("C-u")
        pane.types("/sta")
        pane.waits_for(r"(?m)^› /stats")
        pane.presses("Enter")
        pane.waits_for("Tokens/s:")
        pane.presses("C-d")
        assert pane.waits_for_the_end() == 0


def test_files_are_found_below_the_folder_by_their_names(home: Home, opened: Opened) -> None:
    (home.folder / "src" / "deep").mkdir(parents=True)
    (home.folder / "src" / "deep" / "llama_notes.txt").write_text("Dolly\n")
    with opened("--notools") as pane:
        pane.types("Read @llan")
        pane.waits_for(r"(?m)^  @src/deep/llama_notes\.txt")
        pane.presses("Tab")
        pane.waits_for(r"(?m)^> Read @src/deep/llama_notes\.txt")


def test_many_lines_are_pasted_as_one_message(home: Home, opened: Opened) -> None:
    with opened("--temperature", "0", "--notools", "--max-tokens", "8") as pane:
        pane.pastes("first line\r\n" + "".join(f"line {n}\r\n" for n in range(2, 40)) + "last line")
        pane.waits_for("last line")
        assert "tokens/s" not in pane.shows(), "nothing is sent before Enter"
        pane.presses("Enter")
        pane.waits_for("/4096")
        pane.enters("/export talk.md", "Saved 2 messages")
    text = (home.folder / "talk.md").read_text()
    assert "first line\nline 2\n" in text
    assert "line 39\nlast line\n" in text


# -- while an answer comes --------------------------------------------------------------------------------------------


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(("width", "height"), [(50, 12), (140, 50)])
def test_a_terminal_may_change_its_size_in_the_middle_of_an_answer(
    home: Home, opened: Opened, width: int, height: int
) -> None:
    home.never_ending()
    with opened("-c", "32k") as pane:
        pane.enters("Hello", r"> Hello\n+(.*\n){5}")
        pane.resizes(width, height)
        pane.waits_for(r"> Hello\n+(.*\n){9}", history=True)
        pane.presses("C-c")
        pane.waits_for(r"\[stopped\]")
        pane.enters("/stats", "Prefix hits")
        screen = pane.waits_for(AT_THE_PROMPT)
        assert prompts(pane.shows(history=True))[:2] == ["Hello", "/stats"]
        assert all(len(line) <= width for line in pane.tmux("capture-pane", "-p").splitlines()), screen


def test_ctrl_c_stops_an_answer_and_continue_goes_on_with_it(home: Home, opened: Opened) -> None:
    home.never_ending()
    with opened("-c", "32k") as pane:
        pane.enters("Hello", "How can I help")
        pane.presses("C-c", "C-c")
        pane.waits_for(r"\[stopped\]")
        screen = pane.enters("/context", "2 messages")
        assert re.search(r"▕.*[█▓▒▚].*▏", screen)
        assert re.search(r"(?m)^1 +\d+  .*Hello", screen)
        # It answers: in the middle of a sentence, its first word has a blank before it.
        pane.enters("/continue", r"> /continue\n+ ?(?!lamb |Reading)\S")
        pane.presses("C-c")
        pane.waits_for(r"(?s)\[stopped\].*\[stopped\]", history=True)
        pane.enters("/load", r"\d+ (s|min)  2 messages  Hello")


def test_lines_wait_in_their_order_and_up_takes_the_newest_back(home: Home, opened: Opened) -> None:
    with opened("--notools", width=60) as pane:
        pane.enters("!echo begun; while [ ! -e over ]; do sleep 0.05; done", r"(?m)^begun$")
        pane.types("/help stats")
        pane.presses("Enter")
        pane.waits_for(r"(?m)^  waits: /help stats\n  Up takes it back, Esc stops the answer\nlamb · ask · ")
        pane.pastes("pasted\nlines")
        pane.waits_for(r"(?m)^> pasted⏎ lines▌")
        pane.presses("Enter")
        pane.waits_for(r"(?m)^  waits: pasted⏎ lines")
        pane.presses("Up", "C-u", "BSpace", "C-u")
        pane.enters("/help exit", r"(?m)^  waits: /help stats\n  waits: /help exit")
        pane.types("half")
        pane.waits_for("> half▌")
        (home.folder / "over").touch()
        pane.waits_for(
            r"(?m)^exit code 0(.|\n)*^> /help stats *\n/stats(.|\n)*^> /help exit *\n/exit(.|\n)*^> half *$",
            history=True,
        )


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("key", ["Escape", "C-c"])
def test_a_stopped_answer_leaves_what_waits_in_the_prompt(home: Home, opened: Opened, key: str) -> None:
    home.never_ending()
    with opened("-c", "32k") as pane:
        pane.enters("Hello", r"> Hello\n+(.*\n){3}")
        pane.enters("What is a llama?", "waits: What is a llama")
        pane.types("And")
        pane.waits_for("> And▌")
        pane.presses(key)
        pane.waits_for(r"\[stopped\]\n> What is a llama\?\n  And\nlamb · ask")
        pane.presses("C-c")
        pane.waits_for(r"\[stopped\]\n> *\nlamb")
        pane.presses("Up")
        pane.waits_for(r"\[stopped\]\n> What is a llama\?\n  And")


# -- modes, and commands of the user --------------------------------------------------------------------------------


def test_shift_tab_goes_through_the_modes_and_accepted_edits_are_made(home: Home, opened: Opened) -> None:
    with opened("--temperature", "0", "--enable-tools", "write_file") as pane:
        pane.waits_for("lamb · ask · ~")
        pane.presses("BTab")
        pane.waits_for("lamb · accept edits · ~")
        pane.enters("Create a file notes.txt with the text hello", r"Tool Result: .*created.*(.|\n)*tokens/s")
        assert [file.read_text() for file in home.folder.glob("*.txt")] == ["hello"]
        pane.presses("BTab")
        pane.waits_for("lamb · plan · ~")
        pane.enters("Create a file notes.txt with the text moon", r"is in plan mode, and write_file")
        assert [file.read_text() for file in home.folder.glob("*.txt")] == ["hello"]
        pane.waits_for(AT_THE_PROMPT)
        pane.enters("/mode", r"Mode: plan\. It only reads")


def test_accepted_edits_ask_before_a_command_runs(opened: Opened) -> None:
    arguments = ("--temperature", "0", "--enable-tools", "execute_command", "--mode", "edits")
    with opened(*arguments) as pane:
        pane.waits_for("lamb · accept edits")
        pane.enters("Run sleep 3141592", r"execute_command wants to run a program(.|\n)*Enter: no")


def test_a_command_of_the_user_runs_and_the_model_gets_its_output(
    home: Home, opened: Opened, listening: Listening
) -> None:
    with listening(ScriptedService(saying("Hi."))) as port, opened(*through(home, port)) as pane:
        pane.enters("!echo llama; echo wrong >&2; false", r"(?m)^llama\nwrong\nexit code 1; the model gets the command")
        pane.enters("!seq 9000", r"(?m)^9000\nexit code 0; the model gets the command and 4,096 of the 43,893 bytes")
        pane.enters("!", "write !COMMAND")
        pane.enters("Hello", "tokens/s")
        pane.enters("/export talk.json", "Saved 2 messages")
    text = (home.folder / "talk.json").read_text()
    assert "$ echo llama; echo wrong >&2; false\\nllama\\nwrong\\n" in text
    assert "39797 bytes left out" in text


def test_ctrl_c_ends_a_command_of_the_user_with_its_children(opened: Opened) -> None:
    time_s = next(names)
    with opened("--notools") as pane:
        pane.enters(f"!sh -c 'sleep {time_s} & echo begun; sleep {time_s}'", r"(?m)^begun$")

        def runs() -> bool:
            return any(["sleep", time_s] == one.info["cmdline"] for one in psutil.process_iter(["cmdline"]))

        assert becomes_true(runs)
        pane.presses("C-c")
        pane.waits_for(r"stopped by the user; the model gets the command and its output")
        pane.waits_for(AT_THE_PROMPT)
        assert not runs()


COMMANDS = ("--temperature", "0", "--enable-tools", "execute_command", "--allow-tools", "execute_command")


ODD, EVEN = ([*itertools.permutations(digits, n)] for digits, n in (("13579", 4), ("2468", 3)))


def seconds(n: int) -> str:
    """Seven digits for `n`, no two alike: the small model that has to copy them miscounts those that come again."""
    odd, even = ODD[n % len(ODD)], EVEN[n // len(ODD) % len(EVEN)]
    return "".join(itertools.chain(*itertools.zip_longest(odd, even, fillvalue="")))


names = map(seconds, itertools.count(os.getpid() * 37))
"""Seconds that no other process sleeps."""


@contextmanager
def sleeping(opened: Opened) -> Iterator[tuple[Pane, Callable[[], bool]]]:
    """A pane in which the model has started a command that never ends; and whether that runs."""
    time_s = next(names)
    with opened(*COMMANDS) as pane:
        pane.enters(f"Run sleep {time_s}", rf"Tool Call: execute_command\(command=.sleep {time_s}.\)")
        pane.waits_for(r"(?m)^\S \d+ s")  # it is on its way
        yield pane, lambda: any(["sleep", time_s] == one.info["cmdline"] for one in psutil.process_iter(["cmdline"]))


def test_ctrl_c_stops_a_command_that_runs_and_the_conversation_goes_on(opened: Opened) -> None:
    with sleeping(opened) as (pane, runs):
        assert becomes_true(runs)
        pane.presses("C-c")
        pane.waits_for(r"\[stopped\]")
        pane.waits_for(AT_THE_PROMPT)
        assert not runs()
        pane.enters("Hello", r"(?s)> Hello.*tokens/s")
        pane.presses("C-d")
        assert pane.waits_for_the_end() == 0


def test_a_terminal_that_is_closed_leaves_no_command_behind(opened: Opened) -> None:
    with sleeping(opened) as (pane, runs):
        assert becomes_true(runs)
        pane.sends(signal.SIGHUP)
        assert pane.waits_for_the_end() == 128 + signal.SIGHUP
        assert not runs()


# -- how it looks -----------------------------------------------------------------------------------------------------


def test_colours_are_shown_unless_nobody_wants_them(opened: Opened) -> None:
    for unwanted, has_colours in (("", True), ("1", False)):
        with opened("--temperature", "0", "--notools", NO_COLOR=unwanted) as pane:
            for line in ("Hello", "/context"):
                pane.enters(line, "4096" if line == "Hello" else "Last prompt")
            written = pane.shows(colours=True).split("Context: ")[-1]
            assert bool(re.search(r"\x1b\[[0-9;]*[39][0-7]m", written)) == has_colours
            assert re.search(r"▕.*[█▓▒▚].*▏", pane.shows()), "signs say it without colours, too"


def test_the_simplest_terminal_gets_plain_text_and_ctrl_c(home: Home, opened: Opened) -> None:
    home.never_ending()
    with opened("-c", "32k", TERM="dumb") as pane:
        pane.enters("Hello", ".{200}")
        pane.presses("C-c")
        pane.waits_for(r"\[stopped\]")
        screen = pane.enters("/context", "2 messages")
        assert re.search(r"(?m)^\[[#=+x.%]+\]$", screen)
        pane.presses("C-c")
        pane.waits_for("Ctrl-D or /quit leaves")
        pane.presses("C-d")
        assert pane.waits_for_the_end() == 0
        assert "\x1b" not in pane.shows(colours=True).replace("\x1b[0m", "")


# -- the editor, and saved conversations -------------------------------------------------------------------------------


def test_the_last_question_is_changed_in_the_users_editor(home: Home, opened: Opened) -> None:
    editor = home.folder / "editor"
    editor.write_text('#!/bin/sh\ncat "$1"; printf "What then? "; read line; printf "%s\\n" "$line" > "$1"\n')
    editor.chmod(0o700)
    with opened("--temperature", "0", "--notools", EDITOR=str(editor)) as pane:
        pane.enters("My name is Ann.", "/4096")
        pane.enters("/edit", r"What then\?")
        pane.enters("My name is Eve.", "Instead: My name is Eve.")
        pane.waits_for(r"(?s)Instead:.*/4096")
        pane.enters("/export talk.md", "Saved 2 messages")
        pane.enters("/undo", "Taken back")
        for key in ("Enter", "y"):
            pane.enters("/export talk.md", r"talk\.md exists\. Overwrite it\?\n\[y\] yes  \[n\] no")
            text = (home.folder / "talk.md").read_text()
            assert "Eve" in text
            assert "Ann" not in text
            pane.presses(key)
            pane.waits_for("No." if key == "Enter" else "Saved 0 messages")
            pane.waits_for(AT_THE_PROMPT)
        pane.presses("C-d")
        assert pane.waits_for_the_end() == 0
    assert "Eve" not in (home.folder / "talk.md").read_text()


def test_an_editor_that_was_not_chosen_comes_with_the_keys_that_leave_it(home: Home, opened: Opened) -> None:
    tools = home.folder / "tools"
    tools.mkdir()
    editor = tools / "vi"
    editor.write_text('#!/bin/sh\nprintf "%s\\n" "Hello again." > "$1"\n')
    editor.chmod(0o700)
    with opened("--temperature", "0", "--notools", EDITOR="", VISUAL="", PATH=str(tools)) as pane:
        pane.enters("Hello", "/4096")
        screen = pane.enters("/edit", "Instead: Hello again.")
        assert "vi opens the question: Esc and :wq save and leave, Esc and :q! leave without a change." in screen


def saved(home: Home, *texts: str) -> None:
    """Conversations that begin with these texts, the newest first."""
    folder = home.folder / ".local" / "share" / "shepherd" / "conversations"
    folder.mkdir(parents=True)
    for n, text in enumerate(texts):
        messages = [{"role": role, "parts": [{"type": "text", "text": words}]}
                    for role, words in (("user", text), ("assistant", "Yes."), ("user", f"Last of {n}"))]  # fmt: skip
        document = {"format": "shepherd conversation", "version": 1, "id": f"id{n}", "folder": f"/srv/work{n}"}
        file = folder / f"2026-11-2{n}-1000-talk.json"
        file.write_text(json.dumps({**document, "messages": messages}))
        os.utime(file, (2_000_000_000 - n, 2_000_000_000 - n))


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(("width", "height"), [(60, 12), (80, 24)])
def test_a_conversation_is_chosen_from_a_list(home: Home, opened: Opened, width: int, height: int) -> None:
    saved(home, "What is a llama?", "Make a plan of the week for all who work in the garden", "Rain")
    with opened("--notools", "--resume", width=width, height=height, at=r"Continue which conversation\? 3") as pane:
        screen = pane.waits_for(r"(?m)^› What is a llama\? .* · /srv/work0 · 3 mes")
        assert "Last of 0\nEnter takes it, Esc leaves; typing filters" in screen
        assert all(len(line) < width for line in screen.splitlines()), screen
        pane.presses("Down")
        pane.waits_for(r"(?m)^› Make a plan(.|\n)*^Last of 1$")
        pane.types("work2 rain")
        pane.waits_for(r"1 of 3\n> work2 rain▌\n› Rain")
        pane.presses("Enter")
        pane.waits_for(r"Continuing 2026-11-22-1000-talk: 3 messages(.|\n)*\nlamb · ask · ~")
        pane.types("/resume ")
        pane.waits_for(r"2026-11-20-1000-talk")
        pane.presses("Enter")
        pane.waits_for(r"Continue which conversation\?")
        pane.presses("Escape")
        pane.waits_for(AT_THE_PROMPT)
        pane.enters("/resume", "Continue which")
        pane.types("llama")
        pane.presses("Enter")
        pane.waits_for(r"Continuing 2026-11-20-1000-talk: 3 messages")


def test_the_list_is_left_by_escape(home: Home, opened: Opened) -> None:
    saved(home, "What is a llama?")
    with opened("--resume", at=r"Continue which conversation\?") as pane:
        pane.presses("Escape")
        assert pane.waits_for_the_end() == 0


def test_a_command_that_is_begun_during_an_answer_has_its_menu(opened: Opened) -> None:
    with opened("--temperature", "0", "--notools") as pane:
        pane.types("Hello!")
        pane.presses("Enter")
        pane.types("/ctx")
        pane.waits_for(r"/context +\S")
        pane.presses("Escape", "C-c", "C-d")
        assert pane.waits_for_the_end() == 0


def test_a_conversation_is_gone_on_with_after_the_terminal_has_died(home: Home, opened: Opened) -> None:
    with opened("--temperature", "0", "--notools") as pane:
        pane.enters("My name is Ann.", "/4096")
        pane.waits_for(AT_THE_PROMPT)
        pane.sends(signal.SIGKILL)
        pane.waits_for_the_end()
    with opened("--temperature", "0", "--notools", "--no-recall", "--continue") as pane:
        pane.waits_for("Last question: My name is Ann.")
        pane.enters("What is my name?", r"(?s)> What is my name\?.*Ann.*/4096")
        pane.enters("/clear", "The conversation is empty now")
        pane.types("/load ")
        pane.waits_for("4 messages  My name is Ann.")
        pane.presses("Tab", "Enter")
        pane.waits_for("Continuing .*: 4 messages.")
