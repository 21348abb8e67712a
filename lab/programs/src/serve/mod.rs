//! The search service: full-text searches over HTTP.

mod http;

use std::path::PathBuf;

use anyhow::Result;

use crate::scheduling;
use crate::search::{Hits, Index, SearchEngine, SearchQuery};
use crate::server::{self, AnswerOutcome, ConnectionAction, RequestHandler, ServerArgs};
use http::{Head, Response};

/// Options of `sidelane-lab serve`.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// Index to search
    #[arg(long, value_name = "DIR")]
    index: PathBuf,
    /// CPU to run on
    #[arg(long)]
    cpu: Option<usize>,
    /// Threads that work
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,
    /// Repeat each search N times, as if the text were N times as long
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    repeats: u16,
    #[command(flatten)]
    server: ServerArgs,
}

/// Opens the index and serves searches until the process is killed.
pub fn run(args: &ServeArgs) -> Result<()> {
    if let Some(cpu) = args.cpu {
        scheduling::pin_to(cpu)?;
    }
    let index = Index::load(&args.index)?;
    let searches = |_worker| Ok(SearchHandler { engine: SearchEngine::open(index)?, repeats: args.repeats });
    server::run_threads(&args.server, (0..args.workers).map(searches).collect::<Result<_>>()?)
}

struct SearchHandler {
    engine: SearchEngine,
    repeats: u16,
}

impl RequestHandler for SearchHandler {
    fn answer_first_request(&mut self, received: &[u8], reply: &mut Vec<u8>) -> AnswerOutcome {
        match http::parse_request_head(received) {
            Ok(None) => AnswerOutcome::Partial,
            Ok(Some(head)) => {
                reply.extend(self.respond(&head).to_bytes());
                let fate = if head.keep_alive { ConnectionAction::Keep } else { ConnectionAction::Close };
                AnswerOutcome::Whole { length: head.length, fate }
            }
            Err(problem) => {
                reply.extend(Response::bad_request(problem).to_bytes());
                AnswerOutcome::Whole { length: received.len(), fate: ConnectionAction::Close }
            }
        }
    }
}

impl SearchHandler {
    fn respond(&self, head: &Head<'_>) -> Response {
        let Some(text) = http::search_query_from_target(head.target) else {
            return Response::not_found();
        };
        let query: SearchQuery = match text.parse() {
            Ok(query) => query,
            Err(error) => return Response::bad_request(&error.to_string()),
        };
        match self.search(&query) {
            Ok(hits) => Response::json(&serde_json::json!({ "hits": hits.count, "top": hits.top })),
            Err(error) => Response::failure(&format!("{error:#}")),
        }
    }

    fn search(&self, query: &SearchQuery) -> Result<Hits> {
        for _ in 1..self.repeats {
            std::hint::black_box(self.engine.search(query)?);
        }
        self.engine.search(query)
    }
}
