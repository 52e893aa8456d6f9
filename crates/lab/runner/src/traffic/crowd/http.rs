//! Requests and answers of HTTP/1.1 (RFC 9112) whose sizes are told beforehand, so that as many bytes cross the path as
//! simulated ones have.

use midspan_apps::ANSWER_HEAD;

/// What ends a head.
const END: &str = "\r\n\r\n";

/// A request of `size` bytes, or as many as it needs, for a body of `answer` bytes.
pub(super) fn request(size: u64, answer: u64) -> Vec<u8> {
    filled(&format!("GET /{answer} HTTP/1.1\r\nHost: service\r\nCookie: "), size)
}

/// The head of the answer.
pub(super) fn head(answer: u64) -> Vec<u8> {
    filled(&format!("HTTP/1.1 200 OK\r\nContent-Length: {answer}\r\nServer: "), ANSWER_HEAD)
}

/// What begins so, and ends after so many bytes.
fn filled(begin: &str, size: u64) -> Vec<u8> {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let filling = size.saturating_sub(begin.len() + END.len());
    format!("{begin}{}{END}", "x".repeat(filling)).into_bytes()
}

/// Takes the first whole request out of `read`: the bytes of the body that it is for, or why it is none.
pub(super) fn take_request(read: &mut Vec<u8>) -> Option<Result<u64, &'static str>> {
    let end = read.windows(END.len()).position(|bytes| bytes == END.as_bytes())? + END.len();
    let head: Vec<u8> = read.drain(..end).collect();
    let target =
        head.strip_prefix(b"GET /").and_then(|rest| rest.split(|byte| *byte == b' ').next());
    let answer = target.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    Some(answer.ok_or("a request asks for something that there is not"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_size_that_was_asked_for_and_are_read_one_by_one() {
        let (first, second) = (request(100, 34_000), request(500, 7));
        assert_eq!((first.len(), second.len()), (100, 500));
        let mut read = [first.clone(), second[..450].to_vec()].concat();
        assert_eq!(take_request(&mut read), Some(Ok(34_000)));
        assert_eq!(take_request(&mut read), None);
        read.extend_from_slice(&second[450..]);
        assert_eq!(take_request(&mut read), Some(Ok(7)));
        assert!(read.is_empty());
        assert!(take_request(&mut b"POST / HTTP/1.1\r\n\r\n".to_vec()).unwrap().is_err());
    }

    #[test]
    fn the_head_of_an_answer_is_as_long_as_the_simulated_one() {
        for answer in [0, 1_000_000_000_000] {
            assert_eq!(head(answer).len() as u64, ANSWER_HEAD);
        }
    }
}
