//! Rules by which connection tracking tells the two legs of a split connection apart, where BPF steers.
//!
//! Both legs have the client's address and port at one end and the server's at the other, so that to connection
//! tracking they are one connection: it would take what the one acknowledges for what the other has sent, and the
//! server's leg, being "known" already, would never be translated (NAT). So the client's leg is not tracked at all, and
//! the server's leg is a connection of this host like any other, which firewall and NAT treat as they treat those.

use midspan_config::Marks;

use crate::error::InterceptionError;
use crate::nftables::nft::Nft;

/// These rules in force. Dropping this removes them.
#[derive(Debug)]
pub(crate) struct Legs {
    _nft: Nft,
}

impl Legs {
    /// Puts them in force, in the calling thread's network namespace, for as long as that thread lives.
    ///
    /// # Errors
    /// When `nft` is missing or refuses.
    pub(crate) fn install(marks: Marks) -> Result<Legs, InterceptionError> {
        // A relay that drains beside this one has its own.
        let name = format!("midspan_legs_{}", std::process::id());
        let mut nft = Nft::start(format!("list chain inet {name} output"))
            .map_err(InterceptionError::Start)?;
        nft.run(&table(&name, marks))?;
        Ok(Legs { _nft: nft })
    }
}

/// The command that creates the table, in one line.
///
/// What a server answers comes to this host's address where its leg was translated, so that steering, which is before
/// NAT, finds no socket for it. It finds one behind it; and behind filters of reverse paths, which would look for one by
/// the mark.
fn table(name: &str, marks: Marks) -> String {
    let Marks { server, client, outgoing } = marks;
    format!(
        "add table inet {name} {{ flags owner; \
         chain untracked {{ type filter hook prerouting priority raw; meta mark {client:#x} notrack; }}; \
         chain output {{ type filter hook output priority raw; meta mark {outgoing:#x} notrack; }}; \
         chain translated {{ type filter hook prerouting priority filter + 100; \
         meta mark != {{ {server:#x}, {client:#x} }} ct direction reply ct status snat \
         meta l4proto {{ 1, 6, 58 }} socket transparent 1 meta mark set {server:#x}; }}; \
         }}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_one_line_with_the_marks() {
        let table = table("midspan_legs_7", Marks::from(0x4d53));
        assert!(!table.contains('\n'));
        assert!(table.contains("meta mark 0x4d53 notrack"), "{table}");
        assert!(table.contains("meta mark 0x4d55 notrack"), "{table}");
    }
}
