//! `midspan cc`. What it loads is there for the whole machine, so these tests load nothing: the crate
//! `ccload` tests that under names of its own.

mod common;

use std::process::Output;

fn cc(arguments: &[&str]) -> Output {
    common::midspan().arg("cc").args(arguments).output().unwrap()
}

#[test]
fn the_list_has_every_control_and_says_what_it_is_for() {
    let output = cc(&["list"]);
    assert!(output.status.success());
    let list = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = list.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(
        names,
        [
            "ms_bbr",
            "ms_bbr3",
            "ms_bbr_2016",
            "ms_cubic",
            "ms_dctcp",
            "ms_illinois",
            "ms_lp",
            "ms_me",
            "ms_nacubic",
            "ms_natcp",
            "ms_radio",
            "ms_reno",
            "ms_westwood"
        ]
    );
    assert!(list.lines().all(|line| line.trim().len() > 20), "{list}");
}

#[test]
fn bad_names_are_refused_with_one_line_and_status_2() {
    for arguments in [&["load", "vegas"][..], &["unload", "ms_vegas"], &["load", "cubic", "vegas"]]
    {
        let output = cc(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("`vegas`") && said.contains("westwood"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    for arguments in [&["load"][..], &["load", "--all", "cubic"], &["load", "me", "--me-rate", "9"]]
    {
        assert_eq!(cc(arguments).status.code(), Some(2), "{arguments:?}");
    }
}
