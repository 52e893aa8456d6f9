//! What an address shows.

use std::sync::Arc;
use std::time::Duration;

use midspan_report::browse::{self, MOST_COMPARED, Pick, Side};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use crate::folder::{Folder, Loaded};

/// How often the folder is looked at for who waits for changes, and for how long at most: then they ask again.
const LOOK: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(25);

/// What is said to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    /// HTTP's status.
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

impl Answer {
    fn page(text: String) -> Answer {
        Answer { status: 200, kind: "text/html; charset=utf-8", text }
    }

    /// A page that says why there is none, in one line.
    pub(crate) fn trouble(status: u16, title: &str, what: &str) -> Answer {
        Answer { status, ..Answer::page(browse::trouble(title, what)) }
    }

    fn missing(what: &str) -> Answer {
        Answer::trouble(404, "Not here", what)
    }
}

/// The answer to a request of `path` with `query`.
pub(crate) async fn answer(folder: Arc<Folder>, path: String, query: String) -> Answer {
    if path == browse::CHANGES {
        return changes(folder, &query).await;
    }
    // Reading and drawing may take long: others are answered meanwhile.
    let made = spawn_blocking(move || match &*path {
        browse::LIST => Answer::page(browse::list(folder.name(), &folder.runs())),
        browse::RUN => run(&folder, &query),
        browse::COMPARE => compare(&folder, &query),
        browse::SCRIPT_PATH => Answer {
            status: 200,
            kind: "text/javascript; charset=utf-8",
            text: browse::SCRIPT.to_owned(),
        },
        _ => Answer::missing("There is no such page."),
    });
    made.await.unwrap_or_else(|_| {
        Answer::trouble(500, "No answer", "The page could not be made; `lab report` may say more.")
    })
}

fn run(folder: &Folder, query: &str) -> Answer {
    let id = value(query, "id").unwrap_or_default();
    let Some(listed) = folder.run(&id) else {
        return Answer::missing("There are no such results.");
    };
    let loaded = folder.load(&id).ok().filter(Loaded::has_records);
    let report = loaded.as_ref().and_then(|loaded| loaded.report().ok());
    Answer::page(browse::run(&listed, report.as_ref()))
}

fn compare(folder: &Folder, query: &str) -> Answer {
    let pick = Pick::parse(query);
    if pick.runs.is_empty() || pick.runs.len() > MOST_COMPARED {
        let what = format!("Choose one to {MOST_COMPARED} runs in the list.");
        return Answer::trouble(400, "Nothing to compare", &what);
    }
    let mut sides: Vec<(&str, u64, Loaded)> = Vec::new();
    for id in &pick.runs {
        let Some(listed) = folder.run(id) else {
            return Answer::missing("One of the runs is not here.");
        };
        match folder.load(id) {
            Ok(loaded) => sides.push((id, listed.begun_unix_ms, loaded)),
            Err(error) => {
                return Answer::trouble(400, "Nothing to compare", &format!("{id}: {error:#}"));
            }
        }
    }
    let mut reports = Vec::new();
    for (id, _, loaded) in &sides {
        match loaded.report() {
            Ok(report) => reports.push(report),
            Err(error) => {
                return Answer::trouble(400, "Nothing to compare", &format!("{id}: {error:#}"));
            }
        }
    }
    let sides: Vec<Side<'_>> = sides
        .iter()
        .zip(&reports)
        .map(|((id, begun_unix_ms, _), report)| Side { id, begun_unix_ms: *begun_unix_ms, report })
        .collect();
    Answer::page(browse::side_by_side(&sides, &pick))
}

/// Waits until the folder is not as the client knows it, or for as long as clients wait.
async fn changes(folder: Arc<Folder>, query: &str) -> Answer {
    let since = value(query, "since").unwrap_or_default();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let folder = folder.clone();
        let now = spawn_blocking(move || folder.fingerprint()).await.unwrap_or_default();
        if now != since || Instant::now() >= deadline {
            return Answer { status: 200, kind: "text/plain; charset=utf-8", text: now };
        }
        sleep(LOOK).await;
    }
}

/// The first value of that name.
fn value(query: &str, name: &str) -> Option<String> {
    let mut values = form_urlencoded::parse(query.as_bytes()).filter(|(known, _)| known == name);
    values.next().map(|(_, value)| value.into_owned())
}
