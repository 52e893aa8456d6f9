//! What splitting gains by a relay's own account: connections that were split beside others that by chance were not.

use serde::{Serialize, Serializer};

use crate::{Conclusion, Outcome, html};
use midspan_units::number::{count, factor};

/// How much faster some of the connections are if they are split.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Effect {
    /// Which connections.
    pub of: String,
    /// How many were split.
    pub split: u64,
    /// How many by chance were not.
    pub held_out: u64,
    /// How many times faster, if anything can be said.
    pub gain: Option<f64>,
    /// Where that is; with `gain` or not at all.
    pub at_least: Option<f64>,
    /// Where that is; with `gain` or not at all.
    pub at_most: Option<f64>,
    /// What follows.
    pub verdict: Judgement,
}

/// What bounds say of splitting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// It makes connections faster.
    Faster,
    /// It makes them slower.
    Slower,
    /// Maybe faster; slower by less than matters.
    NoSlower,
    /// Neither is excluded.
    Unknown,
}

impl Judgement {
    /// How it goes on after "splitting is".
    pub const fn label(self) -> &'static str {
        match self {
            Judgement::Faster => "faster",
            Judgement::Slower => "slower",
            Judgement::NoSlower => "no slower",
            Judgement::Unknown => "not known yet",
        }
    }
}

impl Serialize for Judgement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.label())
    }
}

impl Effect {
    /// The least, the best guess and the most, if anything can be said.
    pub(crate) fn times(&self) -> Option<[f64; 3]> {
        Some([self.at_least?, self.gain?, self.at_most?])
    }

    /// `1.47 x (1.30 to 1.69)`.
    pub(crate) fn in_numbers(&self) -> String {
        self.times().map_or_else(String::new, |[least, gain, most]| {
            format!("{} x ({} to {})", factor(gain), factor(least), factor(most))
        })
    }
}

/// The connections of an hour.
#[derive(Debug, Clone, PartialEq)]
pub struct Hour {
    /// When it began, in seconds of Unix time.
    pub start: u64,
    /// Of those whose slots began in it.
    pub effect: Effect,
}

/// Everything that the page is made of. What is empty is left out.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// What it goes by, such as files' names.
    pub source: &'a str,
    /// Of all connections. None if none counted.
    pub all: Option<&'a Effect>,
    /// By what they carried, from small to large.
    pub sizes: &'a [Effect],
    /// By server, in the order to show.
    pub services: &'a [Effect],
    /// By servers' network, in the order to show.
    pub prefixes: &'a [Effect],
    /// How many servers, and networks, are shown at most.
    pub most: usize,
    /// One after the other.
    pub hours: &'a [Hour],
    /// Which connections were left out, and why.
    pub notes: &'a [String],
}

impl Page<'_> {
    /// The page, which needs nothing but itself.
    pub fn html(&self) -> String {
        html::gain_page(self)
    }

    /// What came out, in a sentence or two.
    pub fn conclusion(&self) -> Conclusion {
        let Some(all) = self.all else {
            let sentence = "Nothing is known yet: no connection counted.".to_owned();
            return Conclusion { sentences: vec![sentence], outcome: Outcome::Unknown };
        };
        let mut sentences = vec![sentence(all)];
        let slower = |effects: &[Effect]| -> Vec<String> {
            let slower = effects.iter().filter(|one| one.verdict == Judgement::Slower);
            slower.map(|one| one.of.clone()).collect()
        };
        let (sizes, services) = (slower(self.sizes), slower(self.services));
        // A good whole must hide none that suffers.
        if all.verdict != Judgement::Slower {
            for (many, words) in [
                (&sizes, "It is slower at these sizes"),
                (&services, "It is slower to these servers"),
            ] {
                if !many.is_empty() {
                    sentences.push(format!("{words}: {}.", listed(many)));
                }
            }
        }
        let outcome = match all.verdict {
            Judgement::Slower => Outcome::Slower,
            _ if !sizes.is_empty() || !services.is_empty() => Outcome::Slower,
            Judgement::Unknown => Outcome::Unknown,
            Judgement::Faster | Judgement::NoSlower => Outcome::Good,
        };
        Conclusion { sentences, outcome }
    }
}

fn sentence(all: &Effect) -> String {
    let connections =
        format!("{} connections split, {} held out", count(all.split), count(all.held_out));
    let Some([least, gain, most]) = all.times() else {
        return format!("Whether splitting is faster is not known yet ({connections}).");
    };
    let (least, gain, most) = (factor(least), factor(gain), factor(most));
    match all.verdict {
        Judgement::Faster => {
            format!("Splitting is {gain} times faster, {least} to {most} ({connections}).")
        }
        Judgement::Slower => {
            format!("Splitting is slower: {gain} times as fast, {least} to {most} ({connections}).")
        }
        Judgement::NoSlower => format!(
            "Splitting is no slower: {gain} times as fast, {least} to {most} ({connections})."
        ),
        Judgement::Unknown => format!(
            "Whether splitting is faster is not known yet: {least} to {most} times as fast ({connections})."
        ),
    }
}

/// More names than this are not read.
const MOST_NAMES: usize = 3;

fn listed(names: &[String]) -> String {
    let more = names.len().saturating_sub(MOST_NAMES);
    let shown = names[..names.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(of: &str, times: Option<[f64; 3]>, verdict: Judgement) -> Effect {
        let of = of.to_owned();
        let (at_least, gain, at_most) =
            (times.map(|it| it[0]), times.map(|it| it[1]), times.map(|it| it[2]));
        Effect { of, split: 1200, held_out: 800, gain, at_least, at_most, verdict }
    }

    fn conclusion(all: &Effect, services: &[Effect]) -> Conclusion {
        let all = Some(all);
        let (sizes, prefixes, hours, notes) = (&[], &[], &[], &[]);
        Page { source: "", all, sizes, services, prefixes, most: 1, hours, notes }.conclusion()
    }

    #[test]
    fn the_sentence_says_what_the_bounds_do() {
        for (verdict, times, words, outcome) in [
            (
                Judgement::Faster,
                [1.01, 1.08, 1.16],
                "is 1.08 times faster, 1.01 to 1.16",
                Outcome::Good,
            ),
            (
                Judgement::Slower,
                [0.6, 0.69, 0.78],
                "is slower: 0.69 times as fast",
                Outcome::Slower,
            ),
            (Judgement::NoSlower, [0.98, 1.0, 1.02], "is no slower: 1.00 times", Outcome::Good),
            (Judgement::Unknown, [0.9, 1.0, 1.2], "not known yet: 0.90 to 1.20", Outcome::Unknown),
        ] {
            let said = conclusion(&effect("all", Some(times), verdict), &[]);
            assert!(said.sentences[0].contains(words), "{said:?}");
            assert_eq!((said.sentences.len(), said.outcome), (1, outcome));
        }
        let said = conclusion(&effect("all", None, Judgement::Unknown), &[]);
        assert!(said.sentences[0].contains("1\u{2009}200 connections split, 800 held out"));
    }

    #[test]
    fn a_good_whole_hides_no_server_that_suffers() {
        let all = effect("all", Some([1.1, 1.2, 1.3]), Judgement::Faster);
        let slower = |of: &str| effect(of, Some([0.4, 0.5, 0.6]), Judgement::Slower);
        let services: Vec<Effect> = ["a", "b", "c", "d", "e"].map(slower).into();
        let said = conclusion(&all, &services);
        assert_eq!(said.sentences[1], "It is slower to these servers: a, b, c and 2 more.");
        assert_eq!(said.outcome, Outcome::Slower);
    }
}
