use super::Unreadable;

/// The longest record: a report of ten thousand UEs has about five million bytes.
const LONGEST: usize = 16 << 20;

/// Cuts a stream of JSON values that follow each other, however they are broken into lines, or of
/// lines, into records.
#[derive(Debug)]
pub struct Splitter {
    kind: Records,
    held: Vec<u8>,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

/// How a stream's records are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Records {
    /// By the braces of JSON objects.
    Objects,
    /// By line ends.
    Lines,
}

impl Splitter {
    /// At a record's beginning.
    pub fn new(kind: Records) -> Splitter {
        Splitter { kind, held: Vec::new(), depth: 0, in_string: false, escaped: false }
    }

    /// Hands each record that `bytes` completes to `take`; keeps what is incomplete.
    ///
    /// # Errors
    /// When a record grows beyond 16 MiB; it is forgotten.
    pub fn feed(&mut self, bytes: &[u8], mut take: impl FnMut(&[u8])) -> Result<(), Unreadable> {
        for &byte in bytes {
            let complete = match self.kind {
                Records::Lines => byte == b'\n',
                Records::Objects => self.object(byte),
            };
            let wanted = match self.kind {
                Records::Lines => !complete,
                Records::Objects => self.depth > 0 || complete,
            };
            if wanted {
                self.held.push(byte);
            }
            if complete {
                if !self.held.trim_ascii().is_empty() {
                    take(&self.held);
                }
                self.held.clear();
            }
        }
        if self.held.len() > LONGEST {
            *self = Splitter::new(self.kind);
            return Err(Unreadable("a record of more than 16 MiB".into()));
        }
        Ok(())
    }

    /// Whether the byte ends an object.
    fn object(&mut self, byte: u8) -> bool {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' if self.depth > 0 => self.in_string = true,
            b'{' => self.depth += 1,
            b'}' if self.depth > 0 => {
                self.depth -= 1;
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(kind: Records, pieces: &[&[u8]]) -> Vec<String> {
        let (mut splitter, mut records) = (Splitter::new(kind), Vec::new());
        for piece in pieces {
            let take = |record: &[u8]| records.push(String::from_utf8_lossy(record).into_owned());
            splitter.feed(piece, take).unwrap();
        }
        records
    }

    #[test]
    fn pretty_printed_objects_follow_each_other() {
        let text = b"{\n \"a\": {\"}\": 1}\n}\n,{\"b\\\"}\":2}\n{\"half\":";
        let expected = ["{\n \"a\": {\"}\": 1}\n}", "{\"b\\\"}\":2}"];
        assert_eq!(split(Records::Objects, &[text]), expected);
    }

    #[test]
    fn lines_may_come_in_pieces_and_empty() {
        assert_eq!(split(Records::Lines, &[b"a,b\n1", b",2\n\n3,4"]), ["a,b", "1,2"]);
    }

    #[test]
    fn what_never_ends_is_not_kept_for_ever() {
        let mut splitter = Splitter::new(Records::Objects);
        let long = vec![b'{'; LONGEST];
        splitter.feed(&long, |_| {}).unwrap();
        assert!(splitter.feed(b"{", |_| {}).is_err());
        let mut records = 0;
        splitter.feed(b"{}", |_| records += 1).unwrap();
        assert_eq!(records, 1);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_a_stream_is_cut(
            bytes in prop::collection::vec(prop::sample::select(b"{}\"\\a\n".to_vec()), 0..200),
            cut in 0usize..200,
        ) {
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            for kind in [Records::Objects, Records::Lines] {
                prop_assert_eq!(split(kind, &[first, second]), split(kind, &[&bytes]));
            }
        }
    }
}
