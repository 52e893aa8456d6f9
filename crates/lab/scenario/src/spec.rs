//! What one cell of a sweep runs: path, workload and where the service stands.

use midspan_path::LinkSpec;
use midspan_units::{ByteSize, Rate, Span};
use serde::{Deserialize, Serialize};

use crate::{Assist, Cells, Hosts, Relay};

/// Everything that a backend needs to run a cell, whatever stands in the middle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellSpec {
    /// What packets cross.
    pub path: PathSpec,
    /// A mobile network before the path; one UE at its end without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cells: Option<Cells>,
    /// How the three hosts' kernels are set up.
    #[serde(default)]
    pub hosts: Hosts,
    /// How Midspan's relay is set up; the other variants ignore it.
    #[serde(default)]
    pub relay: Relay,
    /// What the network tells the senders; nothing without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assist: Option<Assist>,
    /// What runs over the path.
    pub workload: Workload,
    /// Where the server application runs.
    #[serde(default)]
    pub service: Service,
}

/// The two links of the path. They meet at the MEC, which is where a proxy splits connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathSpec {
    /// Between UE and MEC.
    pub access: LinkSpec,
    /// Between MEC and server.
    pub wide: LinkSpec,
}

/// What runs over the path. (In the file a key `kind` names the alternative; the parser turns that
/// into serde's external tag, which keeps an error's place where the internal one loses it.)
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Flows that send as fast as they can, for a time.
    Bulk(Bulk),
    /// Transfers of a given size, each on a connection of its own, one after the other.
    Transfer(Transfer),
    /// Web pages over HTTP.
    Page(Page),
    /// Videos over HTTP, each played while it is downloaded.
    Video(Video),
}

impl CellSpec {
    /// The congestion controls that hosts, legs and applications name.
    pub(crate) fn controls(&self) -> Vec<String> {
        let hosts = [&self.hosts.ue, &self.hosts.mec, &self.hosts.server];
        let legs = [&self.relay.client_leg, &self.relay.server_leg];
        let others = self.cells.iter().flat_map(|cells| &cells.others);
        let workloads = others.map(|others| &others.workload).chain([&self.workload]);
        let of_hosts = hosts.into_iter().map(|host| &host.congestion_control);
        let of_legs = legs.into_iter().filter_map(|leg| leg.congestion_control.as_ref());
        of_hosts.chain(of_legs).chain(workloads.flat_map(Workload::controls)).cloned().collect()
    }
}

impl Workload {
    /// Whether the UE sends more than requests.
    pub(crate) fn uploads(&self) -> bool {
        match self {
            Workload::Bulk(Bulk { direction, .. })
            | Workload::Transfer(Transfer { direction, .. }) => *direction == Direction::Upload,
            Workload::Page(_) | Workload::Video(_) => false,
        }
    }

    /// Whether records have every hundredth of the links' delays.
    pub fn percentiles(&self) -> bool {
        matches!(self, Workload::Bulk(Bulk { percentiles: true, .. }))
    }

    fn controls(&self) -> &[String] {
        match self {
            Workload::Page(page) => page.cross.congestion_control.as_slice(),
            Workload::Bulk(bulk) => &bulk.controls,
            Workload::Transfer(_) | Workload::Video(_) => &[],
        }
    }

    /// Who sends.
    pub fn direction(&self) -> Direction {
        match self {
            Workload::Bulk(bulk) => bulk.direction,
            Workload::Transfer(transfer) => transfer.direction,
            Workload::Page(_) | Workload::Video(_) => Direction::Download,
        }
    }
}

/// Parallel flows that send as fast as they can, for a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bulk {
    /// Who sends. The UE connects in either case.
    pub direction: Direction,
    /// How long the flows send, warm-up included, from when the last has started.
    pub time: Span,
    /// What is left out of every number at the start. Shorter than `time`.
    #[serde(default)]
    pub warmup: Span,
    /// Parallel flows; at least 1.
    #[serde(default = "one")]
    pub flows: u32,
    /// How long after the one before each flow starts; `time` begins with the last. Zero: they start together.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub stagger: Span,
    /// Congestion controls of the sending application's sockets, flow by flow and over again. Empty: its
    /// host's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controls: Vec<String>,
    /// What the client sends first, at most 1 KiB: the server answers with one byte, and then the flow
    /// begins. iperf3 sends 37 bytes. Left out of a result's digest where there is none.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub greeting: ByteSize,
    /// Whether records have every hundredth of the links' delays. Left out of a result's digest where they have not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub percentiles: bool,
    /// How often legs and queues are looked at for the record's series; never without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Span>,
}

impl Bulk {
    /// The congestion control of the flow with this number, if it is not its host's.
    pub fn control_of(&self, flow: usize) -> Option<&str> {
        self.controls.get(flow % self.controls.len().max(1)).map(String::as_str)
    }
}

/// Transfers of a given size, each on a connection of its own, one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// Who sends. The UE connects in either case.
    pub direction: Direction,
    /// Application bytes of each transfer; at least 1.
    pub size: ByteSize,
    /// Transfers in a run; at least 1.
    #[serde(default = "one")]
    pub count: u32,
    /// A run that is not through by then has failed.
    #[serde(default = "ten_minutes")]
    pub limit: Span,
}

/// Web pages, one after the other, loaded by a browser over HTTP/1.1 with persistent connections
/// (RFC 9112, section 9.3): the document first, and its objects as it names them. While they are
/// fetched other connections may cross the wide area.
///
/// What is left out by default is not in a result's digest, which is as it was before there were these
/// keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// Size of the document; at least 1.
    pub document: ByteSize,
    /// The objects that it names.
    #[serde(default)]
    pub objects: Vec<Objects>,
    /// Connections to one server at most; at least 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub connections: u32,
    /// Requests that may wait for their answers on one connection (RFC 9112, section 9.3.2); 1 is no
    /// pipelining.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub pipelining: u32,
    /// Bytes of a request.
    #[serde(default = "request_size", skip_serializing_if = "is_request_size")]
    pub request: ByteSize,
    /// How long the name of a server takes to be looked up.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub lookup: Span,
    /// Pages in a run, each with no connection left from the one before; at least 1.
    #[serde(default = "one")]
    pub count: u32,
    /// A run that is not through by then has failed.
    #[serde(default = "ten_minutes")]
    pub limit: Span,
    /// What crosses the wide area meanwhile.
    #[serde(default)]
    pub cross: Cross,
}

/// Objects of a page whose sizes are spread evenly over a range, so that every run fetches the same page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Objects {
    /// How many.
    pub count: u32,
    /// The least size; at least 1.
    pub least: ByteSize,
    /// The greatest size.
    pub most: ByteSize,
    /// Servers that they come from in turn, beside the document's; none: from that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub servers: u32,
}

impl Objects {
    /// The size of each, rising.
    pub fn sizes(&self) -> impl Iterator<Item = ByteSize> {
        let (least, most) = (self.least.as_bytes(), self.most.as_bytes());
        let steps = u128::from(self.count.saturating_sub(1).max(1));
        (0..self.count).map(move |number| {
            let offset = u128::from(most - least) * u128::from(number) / steps;
            ByteSize::from_bytes(least + offset as u64)
        })
    }
}

/// Connections over which the server's host sends to the MEC's as fast as it can: they share the wide
/// area with the pages, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cross {
    /// How many. Default none.
    #[serde(default)]
    pub flows: u32,
    /// Their congestion control. Default: the server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
}

/// Videos, one after the other, each downloaded over HTTP/1.1 on a connection of its own as fast as it
/// comes and played meanwhile. A video is over when it has been played.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Video {
    /// Its rate, the same throughout; above zero.
    pub rate: Rate,
    /// How long it is; above zero.
    pub duration: Span,
    /// How much must be buffered before it begins to play.
    #[serde(default = "five_seconds")]
    pub start: Span,
    /// How much must be buffered before it goes on after a stall.
    #[serde(default = "one_second")]
    pub resume: Span,
    /// Bytes of the request.
    #[serde(default = "request_size")]
    pub request: ByteSize,
    /// How long the name of the server takes to be looked up.
    #[serde(default)]
    pub lookup: Span,
    /// Videos in a run; at least 1.
    #[serde(default = "one")]
    pub count: u32,
    /// A run that is not through by then has failed.
    #[serde(default = "ten_minutes")]
    pub limit: Span,
}

impl Video {
    /// Bytes of it.
    pub fn size(&self) -> ByteSize {
        let bits = u128::from(self.rate.as_bps()) * u128::from(self.duration.as_nanos());
        ByteSize::from_bytes(u64::try_from(bits.div_ceil(8_000_000_000)).unwrap_or(u64::MAX))
    }

    /// Its download, as that of a page of nothing else.
    pub fn as_page(&self) -> Page {
        Page {
            document: self.size(),
            objects: Vec::new(),
            connections: 1,
            pipelining: 1,
            request: self.request,
            lookup: self.lookup,
            count: self.count,
            limit: self.limit,
            cross: Cross::default(),
        }
    }
}

/// Who sends the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// The UE sends to the service.
    Upload,
    /// The service sends to the UE.
    Download,
}

/// Where the server application runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// The host that it runs on.
    #[serde(default)]
    pub at: ServiceHost,
}

/// A host that can run the server application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceHost {
    /// Beyond the wide area.
    #[default]
    Server,
    /// On the MEC itself: only the access link is crossed, and there is nothing to split.
    Mec,
}

fn one() -> u32 {
    1
}

fn ten_minutes() -> Span {
    Span::from_secs(600)
}

fn five_seconds() -> Span {
    Span::from_secs(5)
}

fn one_second() -> Span {
    Span::from_secs(1)
}

fn request_size() -> ByteSize {
    ByteSize::from_bytes(100)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_one(count: &u32) -> bool {
    *count == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_nothing(span: &Span) -> bool {
    *span == Span::ZERO
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_request_size(size: &ByteSize) -> bool {
    *size == request_size()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_empty(size: &ByteSize) -> bool {
    *size == ByteSize::from_bytes(0)
}
