//! A base station that sends its metrics over a WebSocket once somebody subscribes.

use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use midspan_assist_proto::Causal;
use tungstenite::client::{IntoClientRequest, client_with_config};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error, Message};

use super::{End, Format, SourceChannel, srsgnb};

const CONNECT: Duration = Duration::from_secs(2);
/// How long a read waits before it is seen whether anybody listens.
const READ: Duration = Duration::from_millis(200);
const LONGEST: usize = 16 << 20;

/// Subscribes and passes messages on, until the connection ends or is silent for `silence`.
pub(super) fn listen(
    channel: &mut SourceChannel<Causal>,
    url: &str,
    silence: Duration,
    format: &mut dyn Format,
) -> End {
    match try_listen(channel, url, silence, format) {
        Ok(end) => end,
        Err(error) => End::Down(format!("{url}: {error}")),
    }
}

fn try_listen(
    channel: &mut SourceChannel<Causal>,
    url: &str,
    silence: Duration,
    format: &mut dyn Format,
) -> Result<End, Error> {
    let request = url.into_client_request()?;
    let authority = request.uri().authority().map(|authority| authority.as_str()).unwrap_or("");
    let address = match authority.rsplit_once(':') {
        Some(_) => authority.to_socket_addrs()?.next(),
        None => (authority, 80).to_socket_addrs()?.next(),
    };
    let address = address.ok_or_else(|| std::io::Error::other("no such host"))?;
    let stream = TcpStream::connect_timeout(&address, CONNECT)?;
    // For the handshake; afterwards a read ends soon, so that it is seen whether anybody listens.
    stream.set_read_timeout(Some(CONNECT))?;
    stream.set_write_timeout(Some(CONNECT))?;
    stream.set_nodelay(true)?;
    let config = WebSocketConfig::default().max_message_size(Some(LONGEST));
    let (mut socket, _) = client_with_config(request, stream, Some(config))
        .map_err(|error| std::io::Error::other(error.to_string()))?;
    socket.get_ref().set_read_timeout(Some(READ))?;
    socket.send(Message::text(srsgnb::SUBSCRIBE))?;
    let mut last = Instant::now();
    loop {
        if let Err(end) = channel.check() {
            return Ok(end);
        }
        let end = match socket.read() {
            Ok(Message::Text(text)) => channel.record(text.as_bytes(), format),
            Ok(Message::Binary(bytes)) => channel.record(&bytes, format),
            Ok(Message::Close(_)) => return Ok(End::Down(format!("{url}: closed"))),
            Ok(_) => Ok(()),
            Err(Error::Io(error))
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
            {
                if last.elapsed() > silence {
                    return Ok(End::Down(format!("{url}: silent")));
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        if let Err(end) = end {
            return Ok(end);
        }
        last = Instant::now();
    }
}
