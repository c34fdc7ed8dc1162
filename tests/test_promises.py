"""What the guides promise by "never", "cannot", "always" or "nothing", and which test shows it.

A new sentence with one of these words fails here until it has a test, or stands among the limits with the reason.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from children import run_python

ROOT = Path(__file__).parents[1]
GUIDES = {name: ROOT / "docs" / f"{name}.md" for name in ("mcp", "watching", "memory", "studio")}
GUIDES["SECURITY"] = ROOT / "SECURITY.md"
WORDS = re.compile(r"\b(?:never|cannot|always|nothing)\b", re.IGNORECASE)

# guide -> words of a promise, which stand once in it -> the tests that fail when it is broken
PROMISES: dict[str, dict[str, str]] = {
    "SECURITY": {
        "the MCP server serves nothing that lies outside of its own":
            "test_mcp_server::test_a_link_out_of_the_folder_is_refused_whatever_follows_it "
            "test_mcp_server::test_every_tool_explains_broken_input "
            "test_foreign_beneath::test_what_leads_out_is_refused",
        "messages from a page cannot run code":
            "test_training_control_form::test_what_a_page_says_is_data_and_no_code "
            "test_studio_server_messages::test_a_page_names_no_path_no_address_and_no_class",
        "It listens on the loopback address unless":
            "test_studio_cli::test_without_a_host_it_listens_on_loopback_alone",
        "Nothing is sent anywhere": "test_promises::test_no_process_connects_to_anything_elsewhere",
        "load nothing from the network":
            "test_studio_report::test_no_request_can_leave_a_report "
            "test_studio_page::test_names_with_markup_are_text_everywhere",
    },
    "mcp": {
        "nothing in the folder is executed or changed":
            "test_mcp_server::test_nothing_in_the_folder_is_run_or_changed_by_any_tool",
        "nothing is sent anywhere else": "test_promises::test_no_process_connects_to_anything_elsewhere",
        "neither paths nor links lead out":
            "test_mcp_server::test_a_link_out_of_the_folder_is_refused_whatever_follows_it",
        "a request takes at most 60 s": "test_mcp_server::test_a_request_that_takes_too_long_is_answered",
        "Requests without the token": "test_mcp_server::test_over_http_the_token_and_our_own_address_are_asked_for",
    },
    "memory": {
        "Nothing is written, and models are built":
            "test_memory_config_plan::test_the_command_plans_the_step_of_a_config",
        "`fused=True` nothing":
            "test_memory_plan::test_a_fused_step_takes_no_copies_and_one_of_many_tensors_takes_one",
        "says that the model cannot be planned":
            "test_memory_plan::test_what_has_no_rule_on_meta_is_not_the_inputs_fault",
        "only for inputs that fail on real tensors": "test_memory_plan::test_inputs_that_fail_for_real_are_wrong",
        "without a GPU, weights or data":
            "test_memory_plan::test_a_model_of_a_hundred_billion_parameters_takes_no_memory",
    },
    "watching": {
        "Losses stay the same, bit for bit":
            "test_monitor_watch::test_losses_weights_and_random_numbers_are_those_of_an_unwatched_run",
        "training is not affected": "test_monitor_watch::test_a_child_that_is_killed_does_not_change_the_losses "
            "test_monitor_watch_transport::test_a_child_that_is_stopped_does_not_hold_up_the_end_of_a_watch",
        "the model never sees its error":
            "test_tap_probes_errors::test_a_probe_that_fails_is_taken_off_and_the_model_does_not_notice",
        "What was not sampled cannot stop the loop":
            "test_monitor_stop_judge::test_of_every_fifth_step_the_first_that_is_looked_at_ends_the_loop_and_says_"
            "what_it_cannot_know",
        "appear in no message, command line or file":
            "test_wire_notifier::test_a_target_that_cannot_be_reached_is_named_without_its_secrets "
            "test_wire_notifier::test_the_address_stands_in_no_command_line "
            "test_training_session_notices::test_the_command_line_s_target_is_written_nowhere",
        "The kind is never guessed: a single number is always a scalar":
            "test_runlog_media_intake::test_a_number_stays_a_number_under_any_name "
            "test_runlog_media_intake::test_under_a_name_of_ones_own_only_the_type_makes_a_sample",
        "shown as plain text, never as HTML":
            "test_studio_samples::test_a_finished_run_shows_every_kind_and_one_slider_moves_them_all",
        "Anything that cannot be logged is a problem (`w.problems`) with a hint, never an exception":
            "test_runlog_media_intake::test_what_cannot_be_logged_is_said_and_nothing_raises "
            "test_monitor_watch_media::test_what_is_neither_number_nor_sample_is_reported_as_before",
        "it is not always the last layers that are lost":
            "test_tap_probes_room::test_where_a_look_is_larger_than_the_ring_no_layer_is_lost_for_ever",
        "A process that has handled nothing for 10 s is given up":
            "test_monitor_watch_transport::test_closing_gives_up_a_child_that_does_not_get_on",
        "no graph break, no recompilation": "test_tap_compiled::test_a_watched_compiled_model_computes_the_same_bits_"
            "with_the_same_one_graph",
        "none on weights, buffers, attributes or random state":
            "test_tap_compiled::test_a_pass_leaves_no_trace_in_the_model_nor_in_random_state",
        "so it cannot cause a hang":
            "test_monitor_distributed::test_ranks_log_shards_without_a_collective_and_the_reader_makes_them_whole",
        "the same array always gives the same result":
            "test_vocabulary_array_statistics::test_the_same_array_always_gives_the_same_result",
        "NaN is reported even if it follows":
            "test_monitor_causes::test_nan_is_told_though_it_follows_from_a_cause",
        "or nothing has arrived for `silent_secs`": "test_monitor_silence::test_silence_is_told_once_and_learned_from",
        "A hanging loop sends nothing": "test_monitor_silence::test_a_loop_that_hangs_is_told_of_while_it_does",
        "a kill loses only what came after the last frame":
            "test_runlog_watch_log::test_a_kill_loses_almost_nothing",
        "Two processes cannot write to one log":
            "test_runlog_watch_log::test_a_log_that_another_process_writes_is_left_to_it",
        "A folder that cannot be written to":
            "test_monitor_watch_closing::test_a_folder_that_cannot_be_written_holds_none "
            "test_monitor_watch_closing::test_a_folder_that_is_removed_while_it_is_written_holds_none",
        "*Never removed*":
            "test_runlog_budget::test_a_log_stays_within_its_budget_and_loses_nothing_that_matters",
        "so a kill loses nothing that was committed":
            "test_runlog_budget::test_a_kill_while_the_log_is_thinned_loses_no_look_that_was_committed_last",
        "never within a step": "test_runlog_system_rows::test_the_machine_is_read_between_no_two_lines_of_a_step",
        "Nothing is rewritten when a run resumes":
            "test_runlog_log::test_what_stands_in_a_log_is_not_rewritten_when_its_run_goes_on",
        "non-finite numbers are always shown":
            "test_video_array_frames::test_a_reduced_matrix_never_hides_what_is_not_finite",
        "Files are never overwritten": "test_video_video_file::test_a_video_is_never_overwritten "
            "test_video_videos::test_a_child_that_starts_again_goes_on_with_the_next_number",
        "0 or less: never": "test_inspector_handler_errors::test_without_a_timeout_a_child_stays",
        "a child is always a fresh interpreter":
            "test_monitor_child_link::test_the_child_imports_no_torch_and_neither_does_the_link "
            "test_monitor_child_link::test_a_script_without_a_guard_that_forgets_to_stop_loses_nothing",
        "`requires_grad` is never changed":
            "test_inspector_handler::test_tracking_never_asks_for_a_gradient_itself",
        "None sends nothing": "test_inspector_handler::test_a_transform_that_returns_nothing_sends_nothing",
        "a pause for validation loses no value":
            "test_inspector_handler_errors::test_a_child_ends_after_its_timeout_counted_from_the_last_data_and_new_"
            "data_starts_another",
        "**Failures** never reach the model":
            "test_inspector_handler_errors::test_a_transform_that_fails_is_reported_once_and_the_model_goes_on "
            "test_inspector_handler_errors::test_a_killed_child_is_started_again_and_the_training_does_not_notice",
        "`stop` reports what never arrived":
            "test_inspector_handler_errors::test_of_a_name_from_which_nothing_came_it_is_said_why",
    },
    "studio": {
        "With `TORCHEER_NO_BROWSER=1` it does not": "test_studio_cli::test_a_browser_opens_only_where_somebody_sits",
        "nothing runs twice, no number changes, no value is kept":
            "test_host_network_finder::test_a_training_step_is_bit_equal_with_and_without_the_recorded_call "
            "test_host_network_finder::test_a_recorded_call_keeps_no_value_alive",
        "A large tensor is never sent whole: a slice has at most 131,072 cells":
            "test_studio_layer_tensors::test_of_a_large_tensor_a_page_gets_131072_cells_and_no_more",
        "Without `open()`, it does nothing":
            "test_etorch_netview::test_without_a_page_nothing_is_sent_and_without_open_nothing_is_started",
        "never moves while you hold it":
            "test_studio_network_time::test_a_slider_that_is_held_does_not_grow_under_the_hand",
        "Text and cells are rendered as plain text, never as HTML":
            "test_studio_samples::test_a_finished_run_shows_every_kind_and_one_slider_moves_them_all",
        "Closing a page stops nothing":
            "test_studio_server_control::test_closing_every_page_leaves_the_run_going",
        "sends slices, never a whole large tensor":
            "test_studio_comparison::test_a_large_tensor_is_measured_and_drawn_in_pieces",
        "never written to: names and tags":
            "test_runlog_foreign::test_a_folder_lists_the_runs_of_others_beside_its_own_and_opens_them "
            "test_studio_run_index::test_notes_on_a_foreign_run_leave_it_as_it_is",
        "never in the folder of runs, which may be read-only":
            "test_studio_run_index::test_a_folder_that_is_only_read_has_an_index_too",
        "**Unauthenticated connections** cannot block others":
            "test_studio_server_limits::test_eleven_hundred_half_sent_requests_do_not_lock_the_owner_out "
            "test_studio_server_limits::test_a_request_that_does_not_come_to_its_end_is_ended",
        "Names of layers are rendered as plain text, never as HTML":
            "test_studio_hostile_names::test_a_name_with_markup_is_text",
        "what no page shows is not copied":
            "test_host_host::test_nobody_looks_nothing_is_copied_and_no_memory_is_held",
    },
}  # fmt: skip

# guide -> words -> why they promise nothing
LIMITS: dict[str, dict[str, str]] = {
    "watching": {
        "after the training process has ended cannot be reported": "a limit: there is no one left to report it to",
        "arguments that cannot be copied": "a limit, which is reported",
        "its time says nothing about the rank": "what a number means",
        "as nothing waits for the device": "the reason of a delay",
        "Two cases cannot be distinguished": "a limit of the rules",
    },
    "studio": {"Operations that cannot be rerun": "a limit, which the panel marks"},
}


def prose(guide: str) -> str:
    """The words of a guide in one line, without its programs."""
    return " ".join(re.sub(r"```.*?```", "", GUIDES[guide].read_text(), flags=re.DOTALL).split())


@pytest.mark.parametrize("guide", GUIDES)
def test_each_promise_of_a_guide_has_a_test(guide: str) -> None:
    text, known = prose(guide), [*PROMISES[guide], *LIMITS.get(guide, {})]
    assert {words: text.count(words) for words in known if text.count(words) != 1} == {}, "each stands there once"
    places = [(text.index(words), text.index(words) + len(words)) for words in known]
    assert [
        text[max(0, found.start() - 60) : found.end() + 60]
        for found in WORDS.finditer(text)
        if not any(begin <= found.start() and found.end() <= end for begin, end in places)
    ] == [], "a promise without a test: write one and name it in PROMISES, or say in LIMITS why it is none"


def test_the_tests_that_are_named_are_there() -> None:
    missing = []
    for named in sorted(
        {name for promises in PROMISES.values() for tests in promises.values() for name in tests.split()}
    ):
        file, _, function = named.partition("::")
        path = ROOT / "tests" / f"{file}.py"
        if not path.exists() or f"def {function}(" not in path.read_text():
            missing.append(named)
    assert missing == []


def test_each_promise_of_security_md_names_its_tests() -> None:
    points = GUIDES["SECURITY"].read_text().partition("## Reporting")[0].split("\n- ")[1:]
    for point in points:
        files = re.findall(r"`(tests/\w+\.py)`", point)
        assert files or point.startswith("**A config is a program.**"), point  # that is a warning
        assert [file for file in files if not (ROOT / file).exists()] == []


# -- shown here, as it concerns every room

NOTICE = """
import os, sys

def notice(event, arguments, file=os.environ["NOTICED"]):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        place = arguments[1]
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "urllib.Request"):
        place = arguments[:2]
    else:
        return
    if isinstance(place, tuple) and place[0] not in ("127.0.0.1", "localhost", None):  # a text: a local socket
        with open(file, "a") as lines:
            print(event, place, file=lines)

sys.addaudithook(notice)
open(f"{os.environ['NOTICED']}.{os.getpid()}", "w").close()
"""
PROGRAM = """
import torch
import torcheer as tl

model, x = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()), torch.rand(2, 4)
history = tl.log_forward_pass(model, x)
history.save("pass")
tl.report(history, "pass.html")
torch.save(model.state_dict(), "w.pt")
with tl.watch(model, every=1, to="run") as w:
    for _ in range(3):
        model(x).sum().backward()
        w.log(loss=0.5)
for shown in (history, "run", "w.pt"):
    tl.show(shown, browser=False, block=False).close()
with tl.live(model, to="live") as view:
    view.log(loss=model(x).sum())
print(tl.plan(model, x, optimizer="AdamW"))
"""


@pytest.mark.slow
def test_no_process_connects_to_anything_elsewhere(tmp_path: Path) -> None:
    """Every Python process notes where it connects to: the program, the watch's child, viewers, the reading process."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(NOTICE)
    noticed = tmp_path / "noticed"
    env = {"PYTHONPATH": str(tmp_path / "site"), "NOTICED": str(noticed), "TORCHEER_STATE": str(tmp_path / "state")}
    run_python("-c", PROGRAM, cwd=tmp_path, env=env)
    assert len(list(tmp_path.glob("noticed.*"))) >= 6  # the program, the watch's child, four viewers
    assert not noticed.exists(), noticed.read_text()
    run_python("-c", "import socket; socket.socket(2, 2).sendto(b'', ('192.0.2.1', 9))", env=env, status=None)
    assert "192.0.2.1" in noticed.read_text(), "the notice itself works"
