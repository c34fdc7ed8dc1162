"""Internal names that tests use: the one page, and the only door.

A test says `from seams import Host` for what is listed here, and imports public names (docs/api, README, the guides)
from torcheer itself; tests/test_seams.py refuses anything else. So a module that moves is one line here, not forty
tests. A name is loaded when a test first asks for it: some tests are about processes without torch.

Each value lists names; `ours=theirs` is theirs under a name that says more, `name=.` the module itself.
"""

from __future__ import annotations

import importlib
from typing import Any

# What stays while the rooms around it are rebuilt: an interface that is worth testing for itself.
FROZEN = {
    # one way to disk: whole files, folders, locks
    "torcheer.disk": (
        "append disk=. explain_write_errors FolderLock has_checksum lock_folder lock_holder loose_json read_json "
        "replacing strict_json with_checksum write_file write_once"
    ),
    # a Sample's bytes
    "torcheer.encoding": "decode encode from_bytes MemoryCopy numbers_of refusal to_bytes TYPES",
    # types of numbers
    "torcheer.vocabulary.dtypes": "BLOCKS Dtype DTYPES FLOATS",
    # what boxes and slabs are coloured by
    "torcheer.vocabulary.quantities": "OF_A_PASS QUANTITIES",
    # what layers are measured by
    "torcheer.vocabulary.variables": "VARIABLES WATCHED WATCHED_BY_DEFAULT",
    # which process acts
    "torcheer.ranks": "acts is_main local_rank rank_of ranked Shard split_rank world_size",
    # bytes to another process
    "torcheer.wire.ring": "Ring RingReader",
    "torcheer.wire.ring_queue": "QueueWriter",
    # messages as lines of JSON
    "torcheer.wire.json_codec": "from_json message_kind serialize to_json",
    # lines over a socket
    "torcheer.wire.socket_lines": "connect Wire",
    # the viewer's process
    "torcheer.wire.open_viewer": "inline open_viewer=. start",
    # what a loop shows and is told
    "torcheer.control.control_records": "Act ACTIONS AUTO Change EACH_TRIAL Every Order Parameter State Wants",
    "torcheer.control.loop_messages": "alert_seen AlertSeen Moment Problem",
    # a network as pages and runs have it
    "torcheer.network.network_records": "full_name Layer Net Network network_records=. PlacedLayer Projection Variable",
    # from operations to that network
    "torcheer.network.history_network": "describe_pass MOST_LAYERS",
    # statistics of an array
    "torcheer.vocabulary.array_statistics": (
        "BINS EDGES even_stride merge_rows PERCENTILES Statistics statistics_of SUBSAMPLE_SIZE Summation"
    ),
    # rows and samples of a run in
    "torcheer.runlog.log_writer": "log_folder LogWriter write_account",
    # and out again, whole
    "torcheer.runlog.log_reader": "column_for has_log log_reader=. RunLog WriterLog",
    # and as they come
    "torcheer.runlog.follow.followed_log": "followed_log=. FollowedLog",
    # columns as a page has them
    "torcheer.runlog.table_records": "Column TableHead TableRows",
    # a run's folder
    "torcheer.runlog.run_folder": "begin_run read_run RunFolder",
    # this process's side of a page
    "torcheer.host.host": "Host",
    "torcheer.host.live_view": "Live",
    # a folder, a file or a socket as a page's source
    "torcheer.studio.sources.open_source": (
        "is_live kind_of open_catalog open_source open_source_module=. PathCatalog runs_below runs_in"
    ),
    # what pages and their server say
    "torcheer.studio.connections.messages": (
        "Answer AskAnalysis AskSlice AskStatistics FrameHead FROM_PAGE Look messages=. Recording Rows Run TensorHead"
    ),
    # the server
    "torcheer.studio.server": "listen serve_path server_of url_of",
    # a row of the list of runs
    "torcheer.studio.runs.run_facts": "read_facts",
    # what a session reports as it runs
    "torcheer.training.loop.events": (
        "Alert CheckpointSaved Continued EpochDone Event Paused Resumed StageBegan StageDone StepDone Stopped"
    ),
    # checkpoints on disk
    "torcheer.training.checkpoints.checkpoint_folders": "CheckpointStore",
    # what is swapped in torch
    "torcheer.capture.torch_state": "ATTRIBUTES function_modes NAMES SWAPS Swaps torch_state=.",
    # and whether it can be
    "torcheer.capture.torch_probes": "failed PROBES torch_probes=.",
    # a drawing, placed
    "torcheer.drawing.layout.picture": "BoxView METRICS picture Picture title_of walk",
    # an archive's bytes, to damage them
    "torcheer.archive.format.index_frames": "encode_frame index_frames=. index_header",
    # what a reader of others' files may take
    "torcheer.foreign.readers.budget": "Budget MOST_READ=MOST",
    # text for people
    "torcheer.terminal": "terminal=.",
    # tools of the MCP server, without a client
    "torcheer.mcp_server.run_tools": "_fits RunTools",
}

# What a test reaches for inside a room, by room. A room that is rebuilt leaves fewer here: the test says it by
# public names or by a frozen one. None is added.
INSIDE = {
    "torcheer.archive.exchange.convert": "FORMATS",
    "torcheer.archive.format.archive_folder": "read_about Segment",
    "torcheer.archive.format.archive_writer": "archive_writer=. StreamedValue",
    "torcheer.archive.format.index_tail": "read_backwards",
    "torcheer.archive.format.parallel_checksums": "combine parallel_checksums=. ParallelChecksum",
    "torcheer.archive.format.record_json": "history_from_json history_to_json",
    "torcheer.archive.format.seals": "seals=.",
    "torcheer.archive.format.tensor_kinds": "rebuild_tensor split_tensor",
    "torcheer.archive.format.value_codecs": "CODECS pack_value=pack parse_codec unpack_value=unpack",
    "torcheer.archive.recovery": "RepairReport",
    "torcheer.archive.saved_history": "SavedTrace",
    "torcheer.archive.value_names": "array_names",
    "torcheer.archive.verification": "examine",
    "torcheer.autograd.explanation.rule_checks": "rule_checks=.",
    "torcheer.autograd.gradients.backward_pass": "reachable_nodes",
    "torcheer.autograd.rules": "BACKWARD_RULES=RULES COMPOSITES",
    "torcheer.autograd.rules.indexing": "put_at put_back",
    "torcheer.autograd.rules.rule_table": "notify_listeners parse_rule=parse",
    "torcheer.autograd.tape.nodes": "node_of",
    "torcheer.capture.head_columns": "columns_before_call",
    "torcheer.capture.label_patterns": "LabelPattern",
    "torcheer.capture.process_groups": "process_groups=.",
    "torcheer.capture.proof.replay": "Replay",
    "torcheer.capture.record.device_times": "DeviceTimes",
    "torcheer.capture.record.function_table": "lookup_call",
    "torcheer.capture.record.recorder": "Recorder",
    "torcheer.capture.record.tensor_trees": "leaves",
    "torcheer.capture.special_cases.aten_level": "aten_level=.",
    "torcheer.capture.special_cases.deferred_inside": "deferred_inside=.",
    "torcheer.capture.special_cases.gathered_weights": "gathered_weights=.",
    "torcheer.capture.special_cases.higher_order": "higher_order=.",
    "torcheer.capture.values.byte_history": "byte_history=.",
    "torcheer.capture.values.copy_on_write": "copy_on_write=.",
    "torcheer.capture.values.memory_layout": "is_freed memory_layout=.",
    "torcheer.capture.values.value_copies": "cut_off",
    "torcheer.commands.json_results": "run_as_json",
    "torcheer.config.code_names": "current_name",
    "torcheer.config.source_code": "Unclear",
    "torcheer.control.config_form": "form_of",
    "torcheer.control.loop_control": "loop_control=. LoopControl",
    "torcheer.control.parameter_form": "check_change ParameterChange",
    "torcheer.demo.cli": "new_folder",
    "torcheer.demo.project.digits": "Digits DigitsNet=Net",
    "torcheer.drawing.heat_map": "HeatMap",
    "torcheer.drawing.items.history_items": "items_of",
    "torcheer.drawing.items.item": "GRADIENT Item KEPT",
    "torcheer.drawing.items.item_details": "details_of hover_label overlays_of",
    "torcheer.drawing.layout.box_sizes": "Box ComposedBox Title",
    "torcheer.drawing.layout.compose": "compose",
    "torcheer.drawing.layout.plans": "BoxPlan plan_scene Scene",
    "torcheer.drawing.looks.colours": "DARK FAMILIES family_colours gradient_fill LIGHT RAMP ramp STRANGE Theme",
    "torcheer.drawing.looks.faces": "draw_face",
    "torcheer.drawing.looks.font_metrics": "CHARACTERS FOLDER font_face_css font_files text_width",
    "torcheer.drawing.looks.formula_typesetting": "typeset",
    "torcheer.drawing.looks.sheet": "place_shapes Sheet",
    "torcheer.drawing.looks.vector_shapes": "arrowhead Arrowheads Group Line LineSample Plus Rect Shape Strip Text",
    "torcheer.drawing.writers.graph_text": "GraphText",
    "torcheer.drawing.writers.html_page": "box_data layout_data",
    "torcheer.drawing.writers.pdf": "pdf=. write_pdf",
    "torcheer.drawing.writers.png": "png=. write_png",
    "torcheer.drawing.writers.svg": "arrow_path line_path number write_svg",
    "torcheer.etorch.netview": "counters_of",
    "torcheer.extraction.batches": "Batches",
    "torcheer.extraction.collation": "Collate",
    "torcheer.extraction.extracted_tensors": "extracted_tensors=.",
    "torcheer.extraction.extraction_plan": "extraction_plan=. ExtractionPlan shard_name write_or_match",
    "torcheer.extraction.extraction_run": "_count_lanes",
    "torcheer.extraction.fingerprints": "fingerprint fingerprints=.",
    "torcheer.extraction.readers.row_blocks": "row_blocks=.",
    "torcheer.extraction.readers.row_stream": "row_stream=. RowStream",
    "torcheer.extraction.readers.top_gallery": "_numbers",
    "torcheer.extraction.readers.top_units": "Strongest",
    "torcheer.extraction.values.batch_values": "_copy_shared _few_threads _seed_generators batch_values=.",
    "torcheer.extraction.values.value_rows": "BatchValues",
    "torcheer.extraction.writers.shard_writer": "shard_writer=. ShardWriter",
    "torcheer.extraction.writers.writer_threads": "WriterThreads",
    "torcheer.foreign.ask_readers": "ask_readers=.",
    "torcheer.foreign.beneath": "beneath=. home_of LeadsOut open_beneath",
    "torcheer.foreign.readers.logs.event_messages": "EventReader",
    "torcheer.foreign.readers.logs.event_records": "find_records masked_sums",
    "torcheer.foreign.readers.protobuf": "Messages",
    "torcheer.foreign.readers.weights.torch_pickle": "read_pickle",
    "torcheer.foreign.reading_process": "reading_process=. ReadingProcess",
    "torcheer.foreign.request": "Request",
    "torcheer.history.alignment.array_difference": "Difference difference_of_arrays=difference measure",
    "torcheer.history.alignment.number_patterns": "describe_patterns=describe_numbers",
    "torcheer.history.backward_flow": "BackwardFlow",
    "torcheer.history.compare": "Comparison",
    "torcheer.history.error_notes": "annotate explain is_out_of_memory NOTE_HEAD=HEAD",
    "torcheer.history.flops": "count_flops",
    "torcheer.history.layers.cycles": "AncestorSearch nodes_on_cycles",
    "torcheer.history.layers.layer_names": "assign_layers layer_name",
    "torcheer.history.op_table": "op_table=.",
    "torcheer.history.op_views": "LayerView OpList OpView RecordFields",
    "torcheer.history.text.latex_text": "equations latex_to_text",
    "torcheer.history.trace_protocol": "Trace",
    "torcheer.history.value_arrays": "excerpt to_numpy",
    "torcheer.host.follow.layer_probes": "LayerProbes",
    "torcheer.host.follow.model_pass": "can_record run_once",
    "torcheer.host.follow.network_finder": "network_finder=.",
    "torcheer.host.follow.page_follower": "PageFollower",
    "torcheer.host.follow.pass_observer": "pass_of_weights PassObserver",
    "torcheer.host.follow.record_rate": "RateBudget=Budget",
    "torcheer.host.missing_values": "FOLDED missing_values=.",
    "torcheer.host.rate_schedules": "schedulers_of",
    "torcheer.host.scratch_limits": "scratch_limits=.",
    "torcheer.host.show_page": "capture_for_show",
    "torcheer.host.state_sender": "BATCH_BYTES LEAST_RING MOST_RING",
    "torcheer.host.viewer_connection": "viewer_connection=.",
    "torcheer.inputs": "call_arguments",
    "torcheer.inspector.handler": "_Single",
    "torcheer.inspector.layer_discovery": "first_tensor read_names",
    "torcheer.integrations.hub_folder": "hub_model",
    "torcheer.integrations.wandb_parts.wandb_run": "RunFacts",
    "torcheer.interpret.patching": "PatchSweep",
    "torcheer.interpret.place_hooks": "Places",
    "torcheer.mcp_server.tool_server": "tool_server=.",
    "torcheer.memory.meta_rules": "grouped_matmul",
    "torcheer.modelfiles.model_file": "open_apart",
    "torcheer.models": "named_parts plain_name",
    "torcheer.monitor.analysis": "AlertPlaces Silence WatchAnalysis",
    "torcheer.monitor.callbacks": "as_tensor Callbacks packed",
    "torcheer.monitor.child": "_ORPHAN_SECS",
    "torcheer.monitor.child_link": "Link",
    "torcheer.monitor.child_plan": "Plan",
    "torcheer.monitor.cli": "main",
    "torcheer.monitor.rules.judge": "Rules",
    "torcheer.monitor.rules.loss_fits": "Fit fits_of loss_fits=.",
    "torcheer.monitor.rules.loss_spikes": "LossLevel",
    "torcheer.monitor.rules.rule_settings": "describe_rules resolve_rules",
    "torcheer.monitor.stop_judge": "stop_judge=.",
    "torcheer.monitor.model_watch": "model_watch=.",
    "torcheer.network.fold": "FoldedBox=Box",
    "torcheer.network.function_frames": "paths_with_functions",
    "torcheer.network.heads.token_names": "check_token_names read_token_names write_token_names",
    "torcheer.network.module_summary": "ModuleRow ModuleSummary",
    "torcheer.network.pass_fold": "fold_pass OpLeaf",
    "torcheer.network.placement": "net_of",
    "torcheer.network.rolled_passes": "rolled_passes",
    "torcheer.network.run_network": "network_in",
    "torcheer.network.unit_grids": "Grid grid_of is_picture plane_cells",
    "torcheer.ray_cluster": "joined_cluster",
    "torcheer.remote": "remote=.",
    "torcheer.remote.attached_folders": "attached_folders=.",
    "torcheer.roles.role_table": "PARTS roles_of SINGLE",
    "torcheer.runlog.follow.run_end": "read_end RunEnd",
    "torcheer.runlog.log_frames": (
        "about_log count_values COUNTS decode_cell encode_cell is_cell is_understood LAYER LogPlace STATISTICS"
    ),
    "torcheer.runlog.machine.machine_readings": "MachineReader",
    "torcheer.runlog.machine.system_rows": "SystemRows",
    "torcheer.runlog.media.logged_samples": "LoggedSamples",
    "torcheer.runlog.media.media_files": "image_note pixels_of png_bytes sound_note sound_of wav_bytes",
    "torcheer.runlog.media.media_intake": "Media media_intake=. MediaIntake read_media",
    "torcheer.runlog.ranks.rank_merge": "merge_statistics",
    "torcheer.runlog.table_cells": "cell_of frozen_cells",
    "torcheer.runlog.tables.folded_cells": "CellBlock fold_cells join_cells",
    "torcheer.runlog.tables.long_table": "LongTable",
    "torcheer.runlog.tables.metric_direction": "better",
    "torcheer.runlog.training_tables": "step_losses",
    "torcheer.runlog.volume.log_budget": "LogBudget",
    "torcheer.runlog.volume.log_chunks": "chunks_of next_archive",
    "torcheer.runlog.watch_reader": "has_watch Series Watched",
    "torcheer.studio.comparison.comparison_source": "ComparisonSource",
    "torcheer.studio.comparison.open_comparison": "ComparisonCatalog open_comparison",
    "torcheer.studio.comparison.run_checkpoints": "BEST choose_checkpoint",
    "torcheer.studio.comparison.tensor_pairs": "pair_names",
    "torcheer.studio.connections.answers": "ANSWERS",
    "torcheer.studio.connections.auth": "Keys",
    "torcheer.studio.connections.connection_limits": "connection_limits=.",
    "torcheer.studio.connections.message_handlers": "Hub",
    "torcheer.studio.connections.message_parsing": "InvalidMessage MOST_MESSAGE_BYTES=MOST_BYTES parse_message=parse",
    "torcheer.studio.connections.page_connection": "MOST_ANSWERS page_connection=. PageConnection",
    "torcheer.studio.connections.source_pages": "Channel SourceCatalog",
    "torcheer.studio.connections.subscriptions": "wants_of",
    "torcheer.studio.files.checkpoint_weights": "Checkpoints",
    "torcheer.studio.files.file_source": "FileSource",
    "torcheer.studio.jupyter_entry": "jupyter_entry",
    "torcheer.studio.report.report_writer": "Report",
    "torcheer.studio.report.report_tables": "layer_statistics",
    "torcheer.studio.routes": "page_file PageFile routes=. ROUTES",
    "torcheer.studio.run_outcome": "outcome_of",
    "torcheer.studio.runs.foreign_run": "EVENTS ForeignRun LIGHTNING read_foreign",
    "torcheer.studio.runs.index_file": "load_index save_index",
    "torcheer.studio.runs.run_curves": "read_curves RunCurves thinned",
    "torcheer.studio.runs.run_index": "run_index=. RunIndex",
    "torcheer.studio.runs.run_notes": "read_notes RunNotes write_notes",
    "torcheer.studio.runs.run_removal": "move_to_trash take_back",
    "torcheer.studio.runs.run_table": "list_cells list_columns run_details",
    "torcheer.studio.sources.connected_weights": "into out_of Part",
    "torcheer.studio.sources.layer_frames": (
        "GAP is_gap layer_frames=. LayerFrames LEAST message_of MINUS MOST_CELLS MOST_LEVEL=MOST NAN parse_frame "
        "picture_of PLUS"
    ),
    "torcheer.studio.sources.live_source": "LiveSource",
    "torcheer.studio.sources.log_source": "log_source=. LogSource",
    "torcheer.studio.sources.moment_queries": "MomentQueries RecordedValue Unit",
    "torcheer.studio.sources.pass_source": "PassSource",
    "torcheer.studio.sources.recordings": "recordings_in",
    "torcheer.studio.sources.sample_index": "answer_of SampleIndex",
    "torcheer.studio.sources.source": "Changes Source",
    "torcheer.studio.sources.table_queries": "analyse_column MOST_ROWS",
    "torcheer.studio.sources.timeline": "Timeline Values",
    "torcheer.studio.tensors.layer_tensors": "answer_slice answer_statistics tensors_of",
    "torcheer.studio.tensors.lazy_difference": "LazyDifference",
    "torcheer.studio.tensors.numpy_code": "Opening",
    "torcheer.studio.tensors.tensor_slices": "as_sent cut PIECE Window",
    "torcheer.studio.tensors.tensor_statistics": "describe_numbers",
    "torcheer.tap.compiled.compiled_calls": "CompiledCall",
    "torcheer.tap.compiled.compiled_parts": "compiled_parts",
    "torcheer.tap.compiled.eager_pass": "copied",
    "torcheer.tap.compiled.eager_stance": "EAGER_STANCE",
    "torcheer.tap.compiled.preserved_state": "PreservedState",
    "torcheer.tap.counting.steps": "steps_of",
    "torcheer.tap.device_copies": "copy_to_host host_copy READY SharedCopies",
    "torcheer.tap.device_memory": "device_memory",
    "torcheer.tap.module_selection": "choose",
    "torcheer.tap.pass_counter": "PassCounter",
    "torcheer.tap.pass_tap": "PassTap",
    "torcheer.tap.probe_hooks": "ModuleOutput PassHook",
    "torcheer.tap.probes": "Probes",
    "torcheer.tap.reduction.cuda_statistics": "Fetcher",
    "torcheer.tap.reduction.fused_kernels": "fused_kernels=.",
    "torcheer.tap.reduction.reduction_batch": "reduce row_bytes SAMPLE summed_rows",
    "torcheer.tap.sample_sender": "Sender",
    "torcheer.tap.sending.byte_limits": "ByteLimits fair_bytes fair_share FullKeys",
    "torcheer.tap.sending.finite_checks": "finite_checks=.",
    "torcheer.tap.step_schedule": "Schedule schedule_of",
    "torcheer.tap.tensor_copies": "all_finite offer subsample",
    "torcheer.terminal.human_units": "human_bytes human_count human_number human_secs human_shape plural",
    "torcheer.terminal.name_texts": "did_you_mean first_names",
    "torcheer.terminal.notices": "notices=. program_line",
    "torcheer.terminal.progress": "Progress",
    "torcheer.terminal.streams": "encodable plain_output",
    "torcheer.terminal.text_tables": "format_table",
    "torcheer.training.batches.batch_order": "batch_order=. Feed LeftOut",
    "torcheer.training.batches.sample_order": "BLOCK sample_order sample_order_module=. Scattered",
    "torcheer.training.checkpoints.background_write": "HostCopies LEAST_PINNED",
    "torcheer.training.checkpoints.checkpoint_files": (
        "checkpoint_files=. leave_part MODEL OPTIM Packed read_checkpoint read_checkpoint_folder=read_checkpoint "
        "STATE write_checkpoint"
    ),
    "torcheer.training.checkpoints.checkpoint_manifest": "MANIFEST verify_checkpoint write_manifest",
    "torcheer.training.checkpoints.earlier_runs": "archive_run run_result",
    "torcheer.training.checkpoints.model_export": "export_weights",
    "torcheer.training.checkpoints.parameter_changes": "CHANGE_COLUMNS=COLUMNS ChangeLog",
    "torcheer.training.checkpoints.random_state": "IsolatedRandom restore_rng rng_state",
    "torcheer.training.checkpoints.run_directory": "forget_untrained locked",
    "torcheer.training.checkpoints.saved_steps": "newest_complete",
    "torcheer.training.checkpoints.state_codec": "pack_state=pack unpack_state=unpack",
    "torcheer.training.checkpoints.tensor_files": "ChecksumFile read_tensors write_tensors",
    "torcheer.training.control.requested_tests": "run_all",
    "torcheer.training.control.session_form": "change_parameter form_parameters",
    "torcheer.training.control.start_studio": "run_viewer",
    "torcheer.training.finders.batch_size": "is_memory_error",
    "torcheer.training.finders.learning_rate": "steepest",
    "torcheer.training.inference.inference_run": "_convert _group_inputs predict",
    "torcheer.training.inference.input_converters": "_converter_like",
    "torcheer.training.loop.devices": "resolve_device",
    "torcheer.training.loop.optimizer_step": "Update WeightAverage",
    "torcheer.training.loop.sample_means": "Mean StatefulMeter",
    "torcheer.training.loop.stop_signals": "stop_on_signals",
    "torcheer.training.loop.training_loop": "training_loop=.",
    "torcheer.training.loop.wiring": "judge_wiring",
    "torcheer.training.observe.batch_losses": "Batch LossReader",
    "torcheer.training.observe.batch_samples": "BatchHistory",
    "torcheer.training.observe.layer_captures": "capture_events layer_captures=.",
    "torcheer.training.observe.live_terminal": "live_terminal=.",
    "torcheer.training.observe.metric_csv": "EpochTables metric_csv=. replace_csv",
    "torcheer.training.observe.progress_lines": "make_view progress_lines=. ProgressLines show_progress=show",
    "torcheer.training.observe.run_contents": "describe_run",
    "torcheer.training.observe.sample_facts": "describe_sample origin_of",
    "torcheer.training.observe.step_profiler": "step_profiler=.",
    "torcheer.training.observe.training_log": "TrainingLog",
    "torcheer.training.parallel.batch_shares": "Share",
    "torcheer.training.parallel.hang_watch": "hang_watch=. HangWatch",
    "torcheer.training.parallel.heartbeats": "make_heartbeats standing_of",
    "torcheer.training.parallel.launch": "first_host",
    "torcheer.training.parallel.model_layout": "Layout read_layout recompute",
    "torcheer.training.parallel.process_group": "join_ranks leave",
    "torcheer.training.parallel.session_ranks": "Decision SessionRanks",
    "torcheer.training.parallel.shared_update": "Replica",
    "torcheer.training.parallel.torchrun_agent": "describe_cause describe_end describe_saved LOST_STATUS STATUS_FILE",
    "torcheer.training.projects.new_project": "KINDS new_project new_project_module=.",
    "torcheer.training.simple_session": "as_loader check_parts",
    "torcheer.training.spec.builders.build_session": "assemble build Built",
    "torcheer.training.spec.builders.open_session": "begin inference reopen",
    "torcheer.training.spec.builders.static_state": "dataset_fingerprint",
    "torcheer.training.spec.torchassistant.differences": "DIFFERENCES PAGE",
    "torcheer.training.spec.torchassistant.autogenerated_parts": "fill_eval_steps RATIO RATIOS share_of",
    "torcheer.training.spec.checks.check_config": "check checked findings understand",
    "torcheer.training.spec.checks.completion": "EPOCHS",
    "torcheer.training.spec.read.config_merge": "merged read_spec",
    "torcheer.training.spec.read.config_reference": "config_reference",
    "torcheer.training.spec.read.config_schema": "config_schema",
    "torcheer.training.spec.torchassistant.dialects": "translate",
    "torcheer.training.spec.read.grammar": "DEBUG_PIPELINE GROUPS PIPELINE TOP",
    "torcheer.training.spec.read.key_addresses": "find_key known_key",
    "torcheer.training.spec.read.session_options": "CAPTURE OPTIONS PROFILE WATCH",
    "torcheer.training.spec.read.value_kinds": "Fault Key Kind Schema UNSET Value",
    "torcheer.training.sweep.sweep_folder": "DONE FAILED Monitor STOPPED SweepFolder",
    "torcheer.training.sweep.sweep_grid": "parse_axes split_values trials_of",
    "torcheer.training.sweep.trial_process": "last_words",
    "torcheer.training.trackers.tracker_writers": "tracker_writers=. write_metrics",
    "torcheer.video.array_display": "MOST_NUMBERS numbers",
    "torcheer.video.array_frames": "draw kind_of_frame=kind_of MODES project Running",
    "torcheer.video.file_names": "MOST_NAME_BYTES=MOST_BYTES safe",
    "torcheer.video.frame_layout": "Caption",
    "torcheer.video.frame_plots": "frame_plots=. Room",
    "torcheer.video.frame_text": "frame_text=.",
    "torcheer.video.palette": "palette=.",
    "torcheer.video.value_range": "CALM label round_up Scale",
    "torcheer.video.video_file": "AnimatedFile open_video video_file=. VideoFile",
    "torcheer.video.videos": "settle Videos",
    "torcheer.wire.child_process": "child_process=. ChildProcess ONE_THREAD payload_memory Program",
    "torcheer.wire.fork_registry": "fork_registry=.",
    "torcheer.wire.notify.notifier": "Notifier notify_from",
    "torcheer.wire.notify.notifier_process": "AlertLimit",
    "torcheer.wire.notify.notify_targets": "parse_notify redacted Target",
    "torcheer.wire.page_address": "address_of allowed_by_environment check_base PageAddress parse_host ways_to",
    "torcheer.wire.parent": "map_payload Parent",
    "torcheer.wire.shared_memory": "HANDLED PASSED RING_HEAD=HEAD RingDamaged shared_memory=. TAIL TAKEN",
    "torcheer.wire.socket_path": "HostBusy",
    "torcheer.wire.temporary_folders": "LOCK TemporaryFolder",
    "torcheer.wire.viewer_process": "viewer_process=.",
}

_HOMES = {
    ours: (module, theirs or ours)
    for module, names in (FROZEN | INSIDE).items()
    for ours, _, theirs in (name.partition("=") for name in names.split())
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"tests/seams.py lists no {name!r}. Is it public? Else is there a public way to see it?")
    module, theirs = _HOMES[name]
    home = importlib.import_module(module)
    return home if theirs == "." else getattr(home, theirs)


def __dir__() -> list[str]:
    return sorted(_HOMES)
