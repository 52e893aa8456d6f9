//! Flows by number, without allocating for each. Of the crates that do so, `slab` tells no tenant from the next, and `slotmap`
//! never gives memory back, which a flood has taken.

use std::convert::Infallible;

/// What a flow is known by outside the slab: a slot, and which of its successive tenants. An
/// event for a tenant that has left is told from one for its successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    slot: u32,
    tenant: u32,
}

impl Key {
    /// Tenants are counted in this many bits, so that a key and one more bit fit 64.
    const TENANT_BITS: u32 = 31;

    /// In the low 63 bits.
    pub const fn to_bits(self) -> u64 {
        (self.tenant as u64) << 32 | self.slot as u64
    }

    /// What [`Key::to_bits`] has made these bits of; the highest bit means nothing.
    pub const fn from_bits(bits: u64) -> Key {
        Key { slot: bits as u32, tenant: (bits >> 32) as u32 & ((1 << Self::TENANT_BITS) - 1) }
    }
}

/// Values in numbered slots that are used again and again.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    /// The first tenant of a new slot: no slot that was given back has had it.
    first: u32,
}

#[derive(Debug)]
struct Slot<T> {
    tenant: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab::new()
    }
}

impl<T> Slab<T> {
    /// Slots that are kept.
    const FEW: usize = 1024;

    /// Nothing in it.
    pub const fn new() -> Self {
        Slab { slots: Vec::new(), free: Vec::new(), first: 0 }
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Puts in what `make` makes of its own key.
    ///
    /// # Errors
    /// Those of `make`; nothing is put in then.
    pub fn insert_with<E>(&mut self, make: impl FnOnce(Key) -> Result<T, E>) -> Result<Key, E> {
        let slot = match self.free.last() {
            Some(&slot) => slot,
            None => {
                let slot = self.slots.len() as u32;
                self.slots.push(Slot { tenant: self.first, value: None });
                self.free.push(slot);
                slot
            }
        };
        let place = &mut self.slots[slot as usize];
        let key = Key { slot, tenant: place.tenant };
        place.value = Some(make(key)?);
        self.free.pop();
        Ok(key)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key that the value that comes next will have.
    pub fn next_key(&self) -> Key {
        let slot = self.free.last().copied().unwrap_or(self.slots.len() as u32);
        let tenant = self.slots.get(slot as usize).map_or(self.first, |place| place.tenant);
        Key { slot, tenant }
    }

    /// Puts in a value.
    pub fn insert(&mut self, value: T) -> Key {
        let Ok(key) = self.insert_with(|_| Ok::<_, Infallible>(value));
        key
    }

    /// The value of this key, if it is still there.
    pub fn get(&self, key: Key) -> Option<&T> {
        let place = self.slots.get(key.slot as usize)?;
        if place.tenant == key.tenant { place.value.as_ref() } else { None }
    }

    /// Those in the slots from `first` on, `most` slots of them, and the next slot if there is one.
    pub fn part(
        &self,
        first: usize,
        most: usize,
    ) -> (impl Iterator<Item = (Key, &T)>, Option<usize>) {
        let end = self.slots.len().min(first.saturating_add(most));
        let part = self.slots.get(first..end).unwrap_or_default().iter();
        let part = (first as u32..).zip(part).filter_map(|(slot, place)| {
            Some((Key { slot, tenant: place.tenant }, place.value.as_ref()?))
        });
        (part, (end < self.slots.len()).then_some(end))
    }

    /// The value of this key, if it is still there.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.slots.get_mut(key.slot as usize)?;
        if place.tenant == key.tenant { place.value.as_mut() } else { None }
    }

    /// Takes out the value of this key, if it is still there.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.get_mut(key)?;
        let place = &mut self.slots[key.slot as usize];
        place.tenant = (place.tenant + 1) & ((1 << Key::TENANT_BITS) - 1);
        self.free.push(key.slot);
        place.value.take()
    }

    /// Gives memory back if half of the slots or more are free behind the last one that is taken. The lowest are taken
    /// next, so that there will be.
    pub fn give_back(&mut self) {
        let taken = self.slots.iter().rposition(|slot| slot.value.is_some()).map_or(0, |at| at + 1);
        if self.slots.len() < Self::FEW || taken > self.slots.len() / 2 {
            return;
        }
        let tenants = self.slots.drain(taken..).map(|slot| slot.tenant);
        self.first = tenants.fold(self.first, u32::max);
        self.slots.shrink_to_fit();
        self.free.retain(|&slot| (slot as usize) < taken);
        self.free.sort_unstable_by(|a, b| b.cmp(a));
        self.free.shrink_to_fit();
    }

    /// How many slots there are, taken and free.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// What is in a slot, and its key.
    pub fn at(&mut self, slot: usize) -> Option<(Key, &mut T)> {
        let place = self.slots.get_mut(slot)?;
        let key = Key { slot: slot as u32, tenant: place.tenant };
        place.value.as_mut().map(|value| (key, value))
    }

    /// The keys of all values, by slot.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        (0u32..)
            .zip(&self.slots)
            .filter(|(_, place)| place.value.is_some())
            .map(|(slot, place)| Key { slot, tenant: place.tenant })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_does_not_reach_the_next_tenant() {
        let mut slab = Slab::new();
        let first = slab.insert_with(|_| Ok::<_, ()>('a')).unwrap();
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert_with(|_| Ok::<_, ()>('b')).unwrap();
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get_mut(second), Some(&mut 'b'));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn what_is_given_back_is_nobodys_when_it_comes_again() {
        let mut slab = Slab::new();
        let keys: Vec<_> =
            (0..4_000).map(|n| slab.insert_with(|_| Ok::<_, ()>(n)).unwrap()).collect();
        keys[100..].iter().for_each(|key| assert!(slab.remove(*key).is_some()));
        slab.give_back();
        assert_eq!((slab.len(), slab.slots()), (100, 100));
        let again: Vec<_> =
            (0..2_000).map(|n| slab.insert_with(|_| Ok::<_, ()>(n)).unwrap()).collect();
        assert!(keys[100..].iter().all(|key| slab.get(*key).is_none()));
        assert!(keys[..100].iter().chain(&again).all(|key| slab.get(*key).is_some()));
        // One that stays at the end keeps all.
        again[..1_999].iter().for_each(|key| assert!(slab.remove(*key).is_some()));
        slab.give_back();
        assert_eq!(slab.slots(), 2_100);
    }

    #[test]
    fn all_are_found_part_by_part() {
        let mut slab = Slab::new();
        let keys: Vec<_> = (0..10).map(|n| slab.insert_with(|_| Ok::<_, ()>(n)).unwrap()).collect();
        slab.remove(keys[3]);
        let (mut found, mut next) = (Vec::new(), Some(0));
        while let Some(first) = next {
            let (part, after) = slab.part(first, 4);
            found.extend(part.map(|(key, &n)| (slab.get(key).copied(), n)));
            next = after;
        }
        assert_eq!(found.len(), 9);
        assert!(found.iter().all(|&(got, n)| got == Some(n) && n != 3));
    }

    #[test]
    fn a_failed_insert_leaves_nothing() {
        let mut slab = Slab::<char>::new();
        assert_eq!(slab.insert_with(|_| Err(7)), Err(7));
        assert_eq!((slab.len(), slab.keys().count()), (0, 0));
        assert!(slab.insert_with(|_| Ok::<_, ()>('a')).is_ok());
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn the_next_key_is_foretold() {
        let mut slab = Slab::new();
        for round in 0..3 {
            let keys: Vec<_> = (0..5).map(|n| (slab.next_key(), slab.insert(n))).collect();
            assert!(keys.iter().all(|(foretold, key)| foretold == key), "{round}");
            keys[round..].iter().for_each(|(_, key)| assert!(slab.remove(*key).is_some()));
        }
    }

    #[test]
    fn keys_survive_their_bits() {
        let key = Key { slot: u32::MAX, tenant: (1 << Key::TENANT_BITS) - 1 };
        assert_eq!(Key::from_bits(key.to_bits()), key);
        assert_eq!(key.to_bits() >> 63, 0);
    }
}
