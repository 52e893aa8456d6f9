//! Keys that are pressed while something is shown live.

use std::io;
use std::time::Instant;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What was pressed, if it was before `due`.
pub(super) fn pressed(due: Instant) -> io::Result<Option<KeyEvent>> {
    if !event::poll(due.saturating_duration_since(Instant::now()))? {
        return Ok(None);
    }
    Ok(match event::read()? {
        Event::Key(key) if key.kind == KeyEventKind::Press => Some(key),
        _ => None,
    })
}

/// Whether it is one that ends the program.
pub(super) fn ends(key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}
