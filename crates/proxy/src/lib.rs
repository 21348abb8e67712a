//! Proxy in front of a server and its backups (Tailor, thesis §4.2.2 and §4.2.3).
//!
//! - [`request_table`]: decides which server gets each request and which answer counts, and keeps the counts. No I/O.
//! - [`http`], [`resp`]: the protocols. No I/O.
//! - [`access`]: the access log, from the serving threads to the writing thread.
//! - [`export`]: slow requests, from the serving threads to the thread that exports them.
//! - [`hazard_board`]: the shared memory in which watchers (`crates/hazards`) publish hazards.
//! - [`tls`]: certificate and key of TLS to clients.
//! - [`edge`]: all sockets and timers; it calls the request table.
//!
//! `sidelane_policy::hedge` decides when a hazard leads to an action.
//!
//! # Invariants
//!
//! - A request that is not safe to repeat runs at most once, and each request ends once (`tests/histories.rs`:
//!   `unrepeatable_requests_are_sent_once_and_each_ends_once`).
//! - A request waits at two servers at most (`tests/histories.rs`:
//!   `unrepeatable_requests_are_sent_once_and_each_ends_once`).
//! - Redis replies come in the client's order, each once (`tests/reply_queue.rs`:
//!   `replies_come_in_the_clients_order_each_once`).
//! - Any bytes, however split, are read or refused, and never in two ways (`tests/fuzz.rs`:
//!   `fuzzed_messages_are_read_or_refused_and_never_in_two_ways`).
//! - Memory does not grow with finished requests (`src/request_table/slots.rs`:
//!   `memory_does_not_grow_with_ended_requests`; `src/resp/reply_queue.rs`:
//!   `memory_does_not_grow_with_the_commands_that_are_answered`).
//! - A connection with a half-written request is not used again (`tests/edge/http.rs`:
//!   `early_answer_leaves_no_half_sent_request_behind`).
//! - A failure counts against the server that failed, also if another server answers the client
//!   (`tests/edge/outliers.rs`: `lost_connection_counts_though_the_backup_answers`).
//! - A client cannot hold a server's connection by sending slowly (`src/edge/pace.rs`:
//!   `client_below_500_bytes_per_second_is_late`).
//! - Each request has one line in the access log, without a control character (`tests/edge/access.rs`:
//!   `each_request_of_a_connection_has_its_line`, `any_bytes_of_a_request_are_one_line`).
//! - The access log has no argument of a Redis command (`tests/edge/access.rs`:
//!   `redis_commands_are_logged_without_arguments`).
//! - Rotation of the access log loses no line (`crates/sidelane/tests/proxy/access.rs`:
//!   `rotation_by_rename_and_sighup_loses_no_line`).
//! - A full disk loses lines and no request (`crates/sidelane/tests/proxy/access.rs`:
//!   `full_disk_loses_log_lines_and_no_request`).
//! - A trace that a client gets for its request is a trace of this request (`crates/sidelane/tests/proxy/traces.rs`:
//!   `trace_of_a_slow_request_names_the_cause_at_its_server`).
//! - An exported request continues the trace of its client, and its spans sum to its latency (`src/run/traced/export.rs`:
//!   `request_continues_the_trace_of_its_client`, `spans_of_proxy_and_server_sum_to_the_latency`).
//! - An export delays no request: what the queue has no room for is counted (`src/export.rs`:
//!   `slow_requests_wait_and_those_beyond_are_counted`).
//! - No client waits for a stopped or killed server while another server is there
//!   (`crates/sidelane/tests/proxy/hazards.rs`: `stopped_server_is_replaced_without_waiting_for_it`,
//!   `a_killed_server_is_replaced_comes_back_and_is_warmed_up`).
//! - A client that exceeds a limit gets an error, and other clients are still served
//!   (`crates/sidelane/tests/proxy/limits.rs`: `unfinished_head_gets_408_and_delays_no_other_client`,
//!   `a_flood_of_clients_is_turned_away_with_503_and_ends`).
//! - An answer that broke off has no regular end over TLS (`tests/edge/tls.rs`:
//!   `broken_off_answer_has_no_regular_end`).
//! - A renewed certificate costs no connection and no request (`crates/sidelane/tests/proxy/tls.rs`:
//!   `renewed_certificate_is_used_and_no_connection_is_lost`).
//! - All threads have the same active server, and failures of all count (`src/request_table/roles.rs`:
//!   `failures_of_two_threads_count_as_of_one`).
//! - SIGTERM under load loses no request that the proxy took, with several threads and with TLS
//!   (`crates/sidelane/tests/proxy/threads.rs`: `sigterm_under_load_loses_no_request_of_two_threads`).

#![warn(missing_docs)]

pub mod access;
pub mod config;
pub mod edge;
pub mod export;
pub mod hazard_board;
pub mod http;
pub mod request_table;
pub mod resp;
pub mod run;
pub mod tls;
