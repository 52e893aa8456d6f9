use std::collections::VecDeque;

use midspan_units::{Span, Time};

use crate::slab::{Key, Slab};

/// What waits for something, all of it for the same time at most.
#[derive(Debug)]
pub struct Waits<T> {
    patience: Span,
    waiting: Slab<T>,
    /// As all have the same time, the first in is the first due. Those that have gone stay until they are the first.
    due: VecDeque<(Time, Key)>,
}

impl<T> Waits<T> {
    /// Nothing that waits; each will for so long at most.
    pub const fn new(patience: Span) -> Self {
        Waits { patience, waiting: Slab::new(), due: VecDeque::new() }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The key that the next will have.
    pub fn next_key(&self) -> Key {
        self.waiting.next_key()
    }

    /// One more that waits from now on.
    pub fn insert(&mut self, value: T, now: Time) -> Key {
        let key = self.waiting.insert(value);
        self.due.push_back((now + self.patience, key));
        key
    }

    /// The one of this key, if it still waits.
    pub fn get(&self, key: Key) -> Option<&T> {
        self.waiting.get(key)
    }

    /// Takes the one of this key, if it still waits.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.waiting.remove(key)
    }

    /// When the next has waited for too long.
    pub fn poll_timeout(&mut self) -> Option<Time> {
        while let Some(&(due, key)) = self.due.front() {
            if self.waiting.get(key).is_some() {
                return Some(due);
            }
            self.due.pop_front();
        }
        None
    }

    /// Takes the next that has waited for too long.
    pub fn take_expired(&mut self, now: Time) -> Option<T> {
        self.poll_timeout().filter(|&due| due <= now)?;
        self.due.pop_front().and_then(|(_, key)| self.waiting.remove(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_gone_does_not_expire() {
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let mut waits = Waits::new(Span::from_millis(10));
        let keys: Vec<_> = (0..4).map(|number| waits.insert(number, at(number))).collect();
        assert_eq!((waits.remove(keys[0]), waits.remove(keys[2])), (Some(0), Some(2)));
        assert_eq!((waits.poll_timeout(), waits.take_expired(at(10))), (Some(at(11)), None));
        assert_eq!((waits.take_expired(at(11)), waits.len()), (Some(1), 1));
        assert_eq!((waits.take_expired(at(99)), waits.take_expired(at(99))), (Some(3), None));
        assert_eq!((waits.poll_timeout(), waits.is_empty()), (None, true));
    }
}
