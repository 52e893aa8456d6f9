//! Values that are well-formed but impossible.

use midspan_config::LegConfig;
use midspan_path::lte::CELLS;
use midspan_path::{ElementSpec, LinkSpec};
use midspan_split::defaults;
use midspan_units::{ByteSize, Span};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::source::{Source, TextSpan};
use crate::host::external_control;
use crate::record::Variant;
use crate::{
    CellSpec, Direction, Error, Host, Objects, OwnRtt, Page, Relay, ServiceHost, Tell, Video,
    Workload,
};

/// Checks a cell that was read from `sections`, in which the places are looked up.
pub(crate) fn spec(
    source: Source<'_>,
    sections: &DeTable<'_>,
    spec: &CellSpec,
) -> Result<(), (TextSpan, Error)> {
    let problem = workload(&spec.workload)
        .or_else(|| link("access", &spec.path.access))
        .or_else(|| link("wide", &spec.path.wide))
        .or_else(|| host("ue", &spec.hosts.ue))
        .or_else(|| host("mec", &spec.hosts.mec))
        .or_else(|| host("server", &spec.hosts.server))
        .or_else(|| leg("client_leg", &spec.relay.client_leg))
        .or_else(|| leg("server_leg", &spec.relay.server_leg))
        .or_else(|| size(&["relay", "buffer"], spec.relay.buffer))
        .or_else(|| shared(&spec.relay))
        .or_else(|| assist(spec))
        .or_else(|| cells(spec));
    let Some(Problem { at, what }) = problem else { return Ok(()) };
    let place = locate(sections, &at);
    let error = source.error(&place, what);
    Err((place, error))
}

/// Refuses proxies where there is nothing to split.
pub(crate) fn service(
    source: Source<'_>,
    template: &DeTable<'_>,
    spec: &CellSpec,
    variants: &[Variant],
) -> Result<(), Error> {
    let proxy = variants.iter().any(|variant| *variant != Variant::None);
    if spec.service.at == ServiceHost::Mec && proxy {
        let at = [Step::Key("service"), Step::Key("at")];
        let what = "with the service on the MEC there is nothing to split; \
                    run `variants = [\"none\"]` or skip the proxies here";
        return Err(source.error(&locate(template, &at), what));
    }
    Ok(())
}

/// What is wrong, and the way to it from the root.
struct Problem {
    at: Vec<Step>,
    what: String,
}

#[derive(Clone, Copy)]
enum Step {
    Key(&'static str),
    Index(usize),
}

fn problem(keys: &[&'static str], what: impl Into<String>) -> Option<Problem> {
    Some(Problem { at: keys.iter().copied().map(Step::Key).collect(), what: what.into() })
}

/// Parallel flows of one run, each with its own threads at both ends.
const MOST_FLOWS: u32 = 1000;
/// Looks of a series, all of which are in the run's record.
const MOST_LOOKS: u64 = 100_000;

fn looks_are_right(bulk: &crate::Bulk, every: Span) -> bool {
    every >= Span::from_millis(1) && bulk.time.as_nanos() / every.as_nanos() <= MOST_LOOKS
}

/// A greeting that goes in one packet wherever.
const MOST_GREETING: ByteSize = ByteSize::from_bytes(1024);
/// Transfers of one run, each with its own record.
const MOST_TRANSFERS: u32 = 100_000;

fn workload(workload: &Workload) -> Option<Problem> {
    match workload {
        Workload::Bulk(bulk) if bulk.time == Span::ZERO => {
            problem(&["workload", "bulk", "time"], "a run of no time measures nothing; try `8 s`")
        }
        Workload::Bulk(bulk) if bulk.warmup >= bulk.time => problem(
            &["workload", "bulk", "warmup"],
            format!(
                "a warm-up of {} leaves nothing of {} to measure; it must be shorter",
                bulk.warmup, bulk.time
            ),
        ),
        Workload::Bulk(bulk) if !(1..=MOST_FLOWS).contains(&bulk.flows) => problem(
            &["workload", "bulk", "flows"],
            format!("{} flows cannot be run; from 1 to {MOST_FLOWS} can", bulk.flows),
        ),
        Workload::Bulk(bulk) if bulk.greeting > MOST_GREETING => problem(
            &["workload", "bulk", "greeting"],
            format!(
                "a greeting of {} is more than a packet; at most {MOST_GREETING}",
                bulk.greeting
            ),
        ),
        Workload::Bulk(bulk) if bulk.series.is_some_and(|every| !looks_are_right(bulk, every)) => {
            problem(
                &["workload", "bulk", "series"],
                format!("a look is 1 ms or more after another, and there are up to {MOST_LOOKS}"),
            )
        }
        Workload::Bulk(bulk) if bulk.controls.len() > bulk.flows as usize => problem(
            &["workload", "bulk", "controls"],
            format!(
                "{} controls for {} flows; there can be one for each",
                bulk.controls.len(),
                bulk.flows
            ),
        ),
        Workload::Bulk(bulk) => {
            let keys = ["workload", "bulk", "controls"];
            bulk.controls.iter().find_map(|name| control(&keys, name))
        }
        Workload::Transfer(transfer) if transfer.size == ByteSize::from_bytes(0) => problem(
            &["workload", "transfer", "size"],
            "an empty transfer has no time; at least `1 B`",
        ),
        Workload::Transfer(transfer) if !(1..=MOST_TRANSFERS).contains(&transfer.count) => problem(
            &["workload", "transfer", "count"],
            format!("{} transfers cannot be run; from 1 to {MOST_TRANSFERS} can", transfer.count),
        ),
        Workload::Transfer(transfer) if transfer.limit == Span::ZERO => {
            problem(&["workload", "transfer", "limit"], "nothing is done in no time; try `10 min`")
        }
        Workload::Page(spec) => page(spec),
        Workload::Video(spec) => video(spec),
        Workload::Transfer(_) => None,
    }
}

/// Objects of one page, each with its own record.
const MOST_OBJECTS: u32 = 1000;
/// Pages of one run.
const MOST_PAGES: u32 = 1000;
/// A browser's connections to one server, and requests under way on one of them.
const MOST_CONNECTIONS: u32 = 100;
/// From what request line and host take to what servers take of headers.
const REQUEST_SIZES: std::ops::RangeInclusive<u64> = 100..=8000;

fn page(page: &Page) -> Option<Problem> {
    let objects: u64 = page.objects.iter().map(|some| u64::from(some.count)).sum();
    let sizes_are_right = |objects: &Objects| {
        objects.least > ByteSize::from_bytes(0) && objects.least <= objects.most
    };
    let key = |key: &'static str| vec![Step::Key("workload"), Step::Key("page"), Step::Key(key)];
    let (at, what) = if page.document == ByteSize::from_bytes(0) {
        (key("document"), "an empty document has no time; at least `1 B`".to_owned())
    } else if objects > u64::from(MOST_OBJECTS) {
        (key("objects"), format!("a page of {objects} objects; at most {MOST_OBJECTS} are fetched"))
    } else if let Some(index) = page.objects.iter().position(|some| !sizes_are_right(some)) {
        let at = [key("objects"), vec![Step::Index(index)]].concat();
        (at, "sizes are from `least`, at least `1 B`, to `most`".to_owned())
    } else if let Some((name, count)) =
        [("connections", page.connections), ("pipelining", page.pipelining)]
            .into_iter()
            .find(|(_, count)| !(1..=MOST_CONNECTIONS).contains(count))
    {
        (key(name), format!("{count} cannot be had; from 1 to {MOST_CONNECTIONS} can"))
    } else if !REQUEST_SIZES.contains(&page.request.as_bytes()) {
        (key("request"), a_request_is())
    } else if !(1..=MOST_PAGES).contains(&page.count) {
        (key("count"), format!("{} pages cannot be run; from 1 to {MOST_PAGES} can", page.count))
    } else if page.limit == Span::ZERO {
        (key("limit"), "nothing is done in no time; try `10 min`".to_owned())
    } else if page.cross.flows > MOST_FLOWS {
        let at = [key("cross"), vec![Step::Key("flows")]].concat();
        (at, format!("{} flows cannot be run; up to {MOST_FLOWS} can", page.cross.flows))
    } else {
        let keys = ["workload", "page", "cross", "congestion_control"];
        return page.cross.congestion_control.as_deref().and_then(|name| control(&keys, name));
    };
    Some(Problem { at, what })
}

/// The largest video, in bytes.
const LARGEST_VIDEO: u64 = 1_000_000_000_000;

fn video(video: &Video) -> Option<Problem> {
    let key = |key: &'static str| vec![Step::Key("workload"), Step::Key("video"), Step::Key(key)];
    let (at, what) = if video.size() == ByteSize::from_bytes(0) {
        (key("rate"), "an empty video cannot be played".to_owned())
    } else if video.size().as_bytes() > LARGEST_VIDEO {
        (key("rate"), format!("a video of {}; at most 1 TB can be had", video.size()))
    } else if !REQUEST_SIZES.contains(&video.request.as_bytes()) {
        (key("request"), a_request_is())
    } else if !(1..=MOST_PAGES).contains(&video.count) {
        (
            key("count"),
            format!("{} videos cannot be played; from 1 to {MOST_PAGES} can", video.count),
        )
    } else if video.limit < video.duration {
        (key("limit"), format!("a video of {} is not played by then", video.duration))
    } else {
        return None;
    };
    Some(Problem { at, what })
}

fn a_request_is() -> String {
    format!("a request is of {} to {} bytes", REQUEST_SIZES.start(), REQUEST_SIZES.end())
}

fn link(name: &'static str, link: &LinkSpec) -> Option<Problem> {
    let element = |direction: &'static str, index: usize, element: &ElementSpec| {
        let error = midspan_path::check(std::slice::from_ref(element)).err()?;
        let mut at = vec![Step::Key("path"), Step::Key(name), Step::Key(direction)];
        at.extend([Step::Index(index), Step::Key(element.name())]);
        Some(Problem { at, what: error.problem })
    };
    let alone = [("up", &link.up), ("down", &link.down)].into_iter().find_map(|(way, elements)| {
        elements.iter().enumerate().find_map(|(index, spec)| element(way, index, spec))
    });
    alone.or_else(|| together(name, link))
}

/// What is wrong with elements that are right each on its own.
fn together(name: &'static str, link: &LinkSpec) -> Option<Problem> {
    let error = link.check().err()?;
    let way = if error.place.starts_with("up") { "up" } else { "down" };
    problem(&["path", name, way], error.to_string())
}

fn assist(spec: &CellSpec) -> Option<Problem> {
    if let Some(what) = spec.cuts().and_then(|(assist, cuts)| cuts.fault(assist.period)) {
        return problem(&["assist", "cuts"], what);
    }
    let assist = spec.assisted()?;
    if !(Span::from_millis(10)..=Span::from_millis(500)).contains(&assist.period) {
        let what = "`period` must be between 10 ms and 500 ms";
        return problem(&["assist", "period"], what);
    }
    if assist.standing_queue > Span::from_secs(1) {
        return problem(&["assist", "standing_queue"], "`standing_queue` must be at most 1 s");
    }
    if !(50..=1_000).contains(&assist.pace_percent) {
        let what = "`pace_percent` must be between 50 and 1000";
        return problem(&["assist", "pace_percent"], what);
    }
    if assist.rtt == OwnRtt::Smoothed && assist.tell != Tell::Bandwidth {
        let what = "`rtt` is the sender's own, which takes `tell = \"bandwidth\"`";
        return problem(&["assist", "rtt"], what);
    }
    let at = &["assist", "feedback"];
    if spec.workload.direction() == Direction::Upload {
        return problem(at, "feedback is for those who send to the UE; make it a download");
    }
    if crate::assist::trace(&spec.path.access.down).is_none() {
        let what = "a base station is wanted to tell of: put a `trace` into `path.access.down`";
        return problem(at, what);
    }
    None
}

/// Users of one run, each with its own sockets and channel.
const MOST_USERS: u32 = 20_000;

fn cells(spec: &CellSpec) -> Option<Problem> {
    let cells = spec.cells.as_ref()?;
    if cells.users == 0 || cells.total() > MOST_USERS {
        let what = format!(
            "{} users in all; there can be from 1 in each of {CELLS} cells to {MOST_USERS}",
            cells.total()
        );
        return problem(&["cells", "users"], what);
    }
    if !(1..=CELLS as u32).contains(&cells.servers) {
        let what = format!("{} servers; there are from 1 to {CELLS}", cells.servers);
        return problem(&["cells", "servers"], what);
    }
    if !(1..=CELLS as u32).contains(&cells.links) {
        let what = format!("{} links to base stations; there are from 1 to {CELLS}", cells.links);
        return problem(&["cells", "links"], what);
    }
    if let Err((key, what)) = cells.radio.check() {
        return problem(&["cells", "radio", key], what);
    }
    if spec.assist.is_some() {
        return problem(&["assist"], "there is no NetAssist in cells; leave `[assist]` out");
    }
    if spec.service.at == ServiceHost::Mec {
        return problem(&["service", "at"], "in cells the service is at the `server`");
    }
    // Users begin within a second, and are measured from then on.
    if matches!(&spec.workload, Workload::Bulk(bulk) if bulk.time <= Span::from_secs(1)) {
        return problem(&["workload", "bulk", "time"], "in cells a run takes more than `1 s`");
    }
    if matches!(&spec.workload, Workload::Bulk(bulk) if bulk.series.is_some()) {
        let what = "of so many users no leg is told of alone; leave it out";
        return problem(&["workload", "bulk", "series"], what);
    }
    if matches!(&spec.workload, Workload::Bulk(bulk) if bulk.stagger != Span::ZERO) {
        return problem(
            &["workload", "bulk", "stagger"],
            "in cells the flows of a user start together",
        );
    }
    if let Workload::Transfer(_) = spec.workload {
        return problem(&["workload"], "users of cells run `bulk`, `page` or `video`");
    }
    cells.others.iter().enumerate().find_map(|(index, others)| {
        let found = match &others.workload {
            Workload::Transfer(_) => "users of cells run `bulk`, `page` or `video`".to_owned(),
            of_others => workload(of_others)?.what,
        };
        let key = [Step::Key("cells"), Step::Key("others")];
        let at = [&key[..], &[Step::Index(index), Step::Key("workload")]].concat();
        Some(Problem { at, what: found })
    })
}

fn host(name: &'static str, host: &Host) -> Option<Problem> {
    if let Some(packets) = host.initcwnd.filter(|packets| !(1..=1000).contains(packets)) {
        let what =
            format!("a window of {packets} packets cannot be begun with; from 1 to 1000 can");
        return problem(&["hosts", name, "initcwnd"], what);
    }
    control(&["hosts", name, "congestion_control"], &host.congestion_control)
}

/// A shared buffer stands in place of all others.
fn shared(relay: &Relay) -> Option<Problem> {
    let legs = [&relay.client_leg, &relay.server_leg];
    let others = legs.iter().any(|leg| leg.receive_buffer.or(leg.send_buffer).is_some());
    let keys = ["relay", "shared"];
    if relay.shared.is_some() && (others || relay.buffer.is_some()) {
        return problem(&keys, "it stands in place of all other buffers: leave those out");
    }
    if relay.shared.is_some() && relay.read_ahead.is_some() {
        return problem(&["relay", "read_ahead"], "not with `shared`, which says what is held");
    }
    if relay.reordering_hold() > defaults::REORDERING_HOLD {
        return problem(&["relay", "reordering_hold"], "at most 50 ms");
    }
    size(&keys, relay.shared)
}

fn leg(name: &'static str, leg: &LegConfig) -> Option<Problem> {
    let named = leg.congestion_control.as_deref();
    named
        .and_then(|named| control(&["relay", name, "congestion_control"], named))
        .or_else(|| {
            // What a live relay takes of a name does not hold of one from outside.
            let mut leg = leg.clone();
            leg.congestion_control.take_if(|name| external_control(name).is_some());
            leg.first_fault()
                .and_then(|(key, said)| problem(&["relay", name, key], format!("`{key}` {said}")))
        })
        .or_else(|| {
            let key = leg.of_clients_alone().filter(|_| name != "client_leg")?;
            problem(&["relay", name, key], "is for `client_leg` alone")
        })
}

/// Whether Linux could have a congestion control of this name (`TCP_CA_NAME_MAX` is 16), or it is one from outside.
fn control(keys: &[&'static str], name: &str) -> Option<Problem> {
    let bare = external_control(name).unwrap_or(name);
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if (1..16).contains(&bare.len()) && bare.chars().all(fits) {
        return None;
    }
    problem(keys, format!("`{name}` is not the name of a congestion control, such as `cubic`"))
}

fn size(keys: &[&'static str], size: Option<ByteSize>) -> Option<Problem> {
    let size = size?.as_bytes();
    if (4096..=1 << 30).contains(&size) {
        return None;
    }
    problem(keys, "the relay takes from `4 KiB` to `1 GiB`; leave the key out for the default")
}

/// The place of the value at the end of the way, or of the last one on it that is written down.
fn locate(table: &DeTable<'_>, at: &[Step]) -> TextSpan {
    let mut place = 0..0;
    let mut here: Option<&Spanned<DeValue<'_>>> = None;
    for step in at {
        let next = match (step, here.map(Spanned::get_ref)) {
            (Step::Key(key), None) => table.get(*key),
            (Step::Key(key), Some(DeValue::Table(table))) => table.get(*key),
            (Step::Index(index), Some(DeValue::Array(items))) => items.get(*index),
            _ => None,
        };
        let Some(next) = next else { break };
        place = next.span();
        here = Some(next);
    }
    place
}
