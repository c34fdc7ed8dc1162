"""Notifications of a run: real commands, a real web server, real processes that end in every way."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from children import Child, has_ended, run_python
from seams import AlertLimit, Notifier, Target, notify_from, parse_notify, redacted
from waiting import wait_until
from webhooks import Webhook

from torcheer.errors import BadArgument
from torcheer.samples import Alert

pytestmark = pytest.mark.filterwarnings("error")

PROGRAM = """
    import sys, time
    from pathlib import Path
    from torcheer.wire.notify.notifier import Notifier
    from torcheer.wire.notify.notify_targets import parse_notify
    notifier = Notifier(parse_notify(sys.argv[1]), title="Net", to=Path("run"), tell=print)
    print(notifier._child.popen.pid, flush=True)
"""


def alert(number: int = 0, severity: str = "warning", rule: str = "nan_inf") -> Alert:
    return Alert(rule, "fc", "grad", number, number, f"number {number}", "look", severity, {"loss": float("nan")})


@contextmanager
def notifier(target: Any, problems: list[str] | None = None, to: Path | None = None) -> Iterator[Notifier]:
    tell = (problems if problems is not None else []).append
    sender = Notifier(parse_notify(target), title="Net", to=to, tell=tell)
    yield sender
    sender.close("10 steps")


# -- what arrives


def test_a_webhook_gets_alerts_and_the_end_as_json(tmp_path: Path) -> None:
    with Webhook() as hook:
        with notifier(hook.url, to=tmp_path) as sender:
            sender.alert(alert(3))
        first, last = hook.events
        assert first["event"] == "alert" and last["event"] == "end"
        assert first["text"] == "torcheer: Net: nan_inf at step 3: fc (grad): number 3. Try: look."
        assert (first["rule"], first["layer"], first["step"], first["severity"]) == ("nan_inf", "fc", 3, "warning")
        assert first["values"] == {"loss": "nan"}, "strict readers refuse a bare NaN"
        assert last["text"] == "torcheer: Net: ended. 10 steps"
        assert last["run"] == str(tmp_path) and last["pid"] == os.getpid() and last["host"] == socket.gethostname()


@pytest.mark.parametrize("as_list", [True, False])
def test_a_command_gets_json_on_its_input_and_the_text(tmp_path: Path, as_list: bool) -> None:
    script = tmp_path / "hear.sh"
    script.write_text(f'cat > {tmp_path}/$TORCHEER_EVENT.json; printf %s "$TORCHEER_TEXT|$1" > {tmp_path}/text\n')
    with notifier(["sh", str(script)] if as_list else f"sh {script}"):
        pass
    assert json.loads((tmp_path / "end.json").read_text())["text"] == "torcheer: Net: ended. 10 steps"
    text = "torcheer: Net: ended. 10 steps"
    assert (tmp_path / "text").read_text() == f"{text}|{text if as_list else ''}"


def test_a_text_from_a_run_is_never_run_by_the_shell(tmp_path: Path) -> None:
    evil = Alert("r", "", "", 0, 0, f"$(touch {tmp_path}/evil) `touch {tmp_path}/evil`; touch {tmp_path}/evil", "")
    with notifier(f'printf %s "$TORCHEER_TEXT" >> {tmp_path}/text') as sender:
        sender.alert(evil)
    assert "touch" in (tmp_path / "text").read_text() and not (tmp_path / "evil").exists()


def test_only_what_was_asked_for_is_sent() -> None:
    with Webhook() as hook:
        with notifier({"url": hook.url, "on": ["alert"], "severity": "error"}) as sender:
            for severity in ("note", "warning", "error"):
                sender.alert(alert(1, severity))
        assert [event["severity"] for event in hook.events] == ["error"] and hook.kinds() == ["alert"]


def test_several_targets_hear_of_the_same(tmp_path: Path) -> None:
    with Webhook() as hook:
        with notifier([{"url": hook.url}, {"command": f"cat > {tmp_path}/end", "on": "end"}]):
            pass
        assert hook.kinds() == ["end"] and json.loads((tmp_path / "end").read_text())["event"] == "end"


def test_more_alerts_than_a_minute_may_have_are_summed_up() -> None:
    with Webhook() as hook:
        with notifier({"url": hook.url, "per_minute": 2}) as sender:
            for number in range(50):
                sender.alert(alert(number, rule="nan_inf" if number % 2 else "dead_relu"))
        assert hook.kinds() == ["alert", "alert", "summary", "end"]
        assert hook.events[2]["text"].startswith(
            "48 more alerts (dead_relu 24, nan_inf 24); the last: torcheer: Net: nan"
        )
        assert hook.events[2]["count"] == 48


def test_the_summary_comes_when_the_minute_is_over_and_takes_a_place() -> None:
    limit, event = AlertLimit(2), {"rule": "r", "text": "t"}
    assert limit.admit(event, 0.0) and limit.admit(event, 1.0) and not limit.admit(event, 2.0)
    assert limit.summary(59.0) is None
    summary = limit.summary(60.0)
    assert summary is not None and summary["count"] == 1 and limit.summary(61.0) is None
    assert limit.admit(event, 61.0) and not limit.admit(event, 62.0)


def test_another_process_of_the_run_may_report_and_nothing_comes_twice() -> None:
    with Webhook() as hook:
        with notifier(hook.url) as sender:
            notify_from(sender.fds[0], alert(1))
            wait_until(lambda: hook.events)
            sender.alert(alert(1))
        assert hook.kinds() == ["alert", "end"]


# -- how a run ends


@pytest.mark.parametrize(
    ("ending", "kind", "words"),
    [
        ("os.kill(os.getpid(), 9)", "crash", "gone without a word"),
        ("os.kill(os.getpid(), 15)", "crash", "gone without a word"),
        ("os._exit(0)", "crash", "gone without a word"),
        ("raise ValueError('no such thing')", "crash", "crashed: ValueError: no such thing"),
        ("sys.exit(3)", "end", "ended."),  # nobody can tell it from a finished program
        ("pass", "end", "ended."),
    ],
)
def test_however_the_process_ends_it_is_reported(ending: str, kind: str, words: str) -> None:
    with Webhook() as hook:
        done = run_python("-c", f"{PROGRAM}\n    import os\n    {ending}", hook.url, status=None)
        wait_until(lambda: hook.events)
        assert hook.kinds() == [kind] and words in hook.events[0]["text"], done.stderr
        wait_until(lambda: has_ended(done.stdout.split()[0]))


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ValueError("x"), "crash"), (KeyboardInterrupt(), "end"), (SystemExit(0), "end"), (SystemExit(2), "crash")],
)
def test_an_exception_is_a_crash_and_ctrl_c_an_end(error: BaseException, kind: str) -> None:
    with Webhook() as hook:
        with notifier(hook.url) as sender:
            sender.close(error=error)
        assert hook.kinds() == [kind]


def test_a_killed_process_with_forks_that_live_on_is_noticed() -> None:
    code = f"{PROGRAM}\n    import os\n    if not os.fork(): time.sleep(60)\n    os.kill(os.getpid(), 9)"
    with Webhook() as hook, Child("-c", code, hook.url) as child:
        child.line()
        wait_until(hook.kinds, "a message")
        assert hook.kinds() == ["crash"]


def test_a_forked_process_notifies_of_nothing() -> None:
    with Webhook() as hook:
        with notifier(hook.url) as sender:
            if not (pid := os.fork()):
                sender.alert(alert())
                sender.close("of the fork")
                os._exit(0)
            os.waitpid(pid, 0)
        assert [event["text"] for event in hook.events] == ["torcheer: Net: ended. 10 steps"]


def test_signals_for_the_whole_job_leave_the_last_word_to_be_sent() -> None:
    with Webhook() as hook, Child("-c", f"{PROGRAM}\n    time.sleep(60)", hook.url) as child:
        pid = int(child.line())
        wait_until(lambda: _ignores(pid, signal.SIGTERM), "its first line of code")
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        child.kill()
        wait_until(hook.kinds, "a message")
        assert hook.kinds() == ["crash"]


def _ignores(pid: int, number: signal.Signals) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn"))
    return bool(mask >> (number - 1) & 1)


# -- targets that do not answer


@pytest.mark.timing
def test_a_webhook_that_hangs_slows_nobody() -> None:
    with Webhook(hangs=True) as hook:
        sender = Notifier(parse_notify(hook.url), title="Net", to=None, tell=print)
        began = time.monotonic()
        for number in range(1000):
            sender.alert(alert(number))
        assert time.monotonic() - began < 5.0, "a try alone takes 15 s"
        wait_until(lambda: hook.requests)
        began = time.monotonic()
        sender.close("done")
        assert time.monotonic() - began < 15.0


def test_a_target_that_cannot_be_reached_is_named_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torcheer.wire.notify.notifier._CLOSE_SECS", 60.0)  # on a busy machine its start takes longer
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        problems: list[str] = []
        target = f"http://user:password@127.0.0.1:{port}/services/path-secret?token=query-secret"
        with notifier(target, problems):
            pass
        assert problems == [f"notify: http://127.0.0.1:{port}/… was not told of the end: Connection refused"]


@pytest.mark.parametrize("status", [404, 403, 302])
def test_a_webhook_that_refuses_is_reported_once_and_not_asked_again(status: int) -> None:
    problems: list[str] = []
    with Webhook(status) as hook:
        target = hook.url.replace("http://", "http://me:password@") + "/path-secret?token=query-secret"
        with notifier(target, problems):
            pass
        assert len(hook.requests) == 1 and len(problems) == 1
        assert problems[0].startswith(
            f"notify: http://127.0.0.1:{hook.port}/… was not told of the end: it answered {status}"
        )
        assert "secret" not in problems[0] and "password" not in problems[0]


def test_user_and_password_of_an_address_are_sent_as_a_header() -> None:
    with Webhook() as hook:
        with notifier(hook.url.replace("http://", "http://me:p%40ss@") + "?a=b"):
            pass
        path, headers = hook.requests[0]
        assert path == "/hook?a=b" and headers["Authorization"] == "Basic bWU6cEBzcw=="


def test_a_webhook_that_fails_for_a_moment_is_tried_again() -> None:
    with Webhook(503) as hook:
        sender = Notifier(parse_notify(hook.url), title="Net", to=None, tell=print)
        sender.close("done")
        wait_until(lambda: hook.kinds() == ["end"])
        assert len(hook.requests) == 2


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("echo oh no >&2; exit 3", "echo was not told of the end: status 3. oh no"),
        (["/no/such/program"], "/no/such/program was not told of the end: No such file or directory"),
        ({"command": "sleep 60", "timeout_secs": 0.2}, "sleep was not told of the end: it took longer than 0.2 s"),
    ],
)
def test_a_command_that_fails_is_reported(command: Any, words: str) -> None:
    problems: list[str] = []
    with notifier(command, problems):
        pass
    assert problems == [f"notify: {words}"]


def test_a_killed_notifying_process_does_not_disturb_the_run() -> None:
    problems: list[str] = []
    with Webhook() as hook:
        with notifier(hook.url, problems) as sender:
            assert sender._child is not None
            sender._child.popen.kill()
            sender._child.popen.wait()
            for number in range(100):
                sender.alert(alert(number))
                notify_from(sender.fds[0], alert(number))
        assert not hook.events
        assert problems == ["nobody is notified of this run any more: the process for it has ended"]


def test_the_address_stands_in_no_command_line() -> None:
    with Webhook() as hook, notifier(f"{hook.url}?secret") as sender:
        assert sender._child is not None
        assert b"secret" not in Path(f"/proc/{sender._child.popen.pid}/cmdline").read_bytes()


# -- settings


@pytest.mark.parametrize(
    ("value", "target"),
    [
        ("https://x.example/h", Target(url="https://x.example/h")),
        ("mail me", Target(command="mail me")),
        (["mail", "me"], Target(command=("mail", "me"))),
        ({"command": ["a"], "on": "crash"}, Target(command=("a",), on=("crash",))),
    ],
)
def test_a_target_is_an_address_or_a_command(value: Any, target: Target) -> None:
    assert parse_notify(value) == (target,) and parse_notify(None) == ()


def test_an_environment_variable_holds_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_HOOK", "https://x.example/secret")
    assert parse_notify({"url": "$MY_HOOK"}) == (Target(url="https://x.example/secret"),)
    monkeypatch.delenv("MY_HOOK")
    with pytest.raises(BadArgument, match="the environment variable MY_HOOK is not set"):
        parse_notify({"url": "${MY_HOOK}"})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            {"uri": "x"},
            "there is no 'uri'; there are url, command, on, severity, per_minute, timeout_secs. Did you mean",
        ),
        ({}, "either a url or a command is needed"),
        ({"url": "https://x", "command": "y"}, "either a url or a command is needed"),
        ({"url": "ftp://secret"}, "a url begins with http:// or https://"),
        ({"url": "http://me:secret@:99999/secret"}, "host or port is missing or wrong"),
        ([], "is no command"),
        ("  ", "is no command"),
        (["a", 3], "is no command"),
        ({"command": "x", "on": "allert"}, "on='allert': there are alert, crash, end. Did you mean 'alert'"),
        ({"command": "x", "severity": "bad"}, "there are note, warning, error"),
        ({"command": "x", "per_minute": 0}, "a whole number from 1 on"),
        ({"command": "x", "timeout_secs": -1}, "a number above 0"),
    ],
)
def test_a_wrong_setting_is_refused_and_shows_no_secret(value: Any, words: str) -> None:
    with pytest.raises(BadArgument) as caught:
        parse_notify(value)
    assert words in str(caught.value) and "secret" not in str(caught.value)


def test_an_address_is_shown_by_its_host_alone() -> None:
    assert redacted("https://hooks.slack.com/services/T0/B0/xyz") == "https://hooks.slack.com/…"
