use std::fmt;
use std::path::Path;

use crate::Error;

/// Linux has 16 bytes for a name (`TCP_CA_NAME_MAX`), the last of which is zero, and `ms_` comes first.
const LONGEST: usize = 12;

/// The name of a control of a user's own: that of its structure in C, without `ms_`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// Checks that a control may be called so: 1 to 12 letters of C's, lower case, and none of Midspan's.
    ///
    /// # Errors
    /// [`Error::Name`].
    pub fn parse(text: &str) -> Result<Name, Error> {
        let name = text.strip_prefix("ms_").unwrap_or(text);
        let wrong = |what| Err(Error::Name { name: text.to_owned(), what });
        let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(letter) {
            return wrong("letters from a to z, digits and _, a letter first");
        }
        if name.len() > LONGEST {
            return wrong("at most 12 letters, for which Linux has room");
        }
        let header = format!("{name}.h");
        let is_taken = midspan_cc::HEADERS.iter().any(|(known, _)| *known == header);
        if is_taken || crate::object::of_midspan(name) {
            return wrong("none that Midspan has a control or a header of");
        }
        Ok(Name(name.to_owned()))
    }

    /// The name that a header's file has.
    ///
    /// # Errors
    /// [`Error::Name`], or [`Error::NotAHeader`].
    pub(crate) fn of(header: &Path) -> Result<Name, Error> {
        let stem = header.file_stem().and_then(|stem| stem.to_str());
        match (stem, header.extension()) {
            (Some(stem), Some(extension)) if extension == "h" => Name::parse(stem),
            _ => Err(Error::NotAHeader { file: header.to_owned() }),
        }
    }

    /// As C has it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_c_s_and_fit_into_the_kernel() {
        for right in ["gentle", "ms_gentle", "a", "mine_2", "twelve_chars"] {
            assert_eq!(
                Name::parse(right).unwrap().as_str(),
                right.strip_prefix("ms_").unwrap_or(right)
            );
        }
        for wrong in ["", "ms_", "2fast", "Gentle", "a-b", "thirteen_char", "../x", "cubic", "cc"] {
            let said = Name::parse(wrong).unwrap_err().to_string();
            assert!(said.contains(&format!("`{wrong}`")), "{said}");
        }
        assert_eq!(Name::of(Path::new("some/gentle.h")).unwrap().as_str(), "gentle");
        assert!(matches!(Name::of(Path::new("gentle.c")), Err(Error::NotAHeader { .. })));
    }
}
