//! How it is shown: as text once, or live in the terminal.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use midspan_observe::admin::Order;
use ratatui::Frame as Canvas;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table};

use super::frame::{Frame, Sample};
use super::{PATIENCE, look};
use crate::command::admin::{Connection, HEADINGS, table};
use crate::command::keys;

const KEYS: &str = "q ends, r by rate, b by bytes, a by age";

/// As plain text.
pub(super) fn text(frame: &Frame, most: usize) -> String {
    let mut text = format!("{}\n", frame.title);
    if !frame.warning.is_empty() {
        text += &format!("!! {}\n", frame.warning);
    }
    for (name, fact) in &frame.facts {
        text += &format!("{name:10}  {fact}\n");
    }
    for (name, count) in &frame.verdicts {
        text += &format!("verdict     {name} {count}\n");
    }
    let rows = &frame.flows[..frame.flows.len().min(most)];
    format!("{text}\n{}{} of {} open flows\n", table(rows), rows.len(), frame.open)
}

/// In the terminal, until the user ends it.
pub(super) fn live(
    relay: Connection,
    socket: &Path,
    first: Sample,
    order: Order,
    interval: Duration,
) -> Result<()> {
    let mut terminal = ratatui::try_init()?;
    let result = Live { relay: Some(relay), order, before: first.clone(), now: first }.run(
        &mut terminal,
        socket,
        interval,
    );
    ratatui::try_restore()?;
    result
}

struct Live {
    /// None while it cannot be reached.
    relay: Option<Connection>,
    order: Order,
    before: Sample,
    now: Sample,
}

impl Live {
    fn run(
        mut self,
        terminal: &mut ratatui::DefaultTerminal,
        socket: &Path,
        interval: Duration,
    ) -> Result<()> {
        let mut due = Instant::now();
        let mut fault = String::new();
        loop {
            if Instant::now() >= due {
                fault =
                    self.look(socket).err().map_or_else(String::new, |error| format!("{error:#}"));
                due = Instant::now() + interval;
            }
            let frame = Frame::between(&self.before, &self.now);
            terminal.draw(|canvas| draw(canvas, &frame, &fault))?;
            match next_key(due)? {
                Some(Key::End) => return Ok(()),
                Some(Key::Order(order)) => {
                    self.order = order;
                    due = Instant::now();
                }
                None => {}
            }
        }
    }

    fn look(&mut self, socket: &Path) -> Result<()> {
        let mut relay = match self.relay.take() {
            Some(relay) => relay,
            None => Connection::open(socket, PATIENCE)?,
        };
        let now = look(&mut relay, self.order)?;
        self.relay = Some(relay);
        let is_another = now.status.pid != self.now.status.pid;
        let before = std::mem::replace(&mut self.now, now);
        // One that was replaced has counted other things.
        self.before = if is_another { self.now.clone() } else { before };
        Ok(())
    }
}

enum Key {
    End,
    Order(Order),
}

/// What the user wants, if it was before `due`.
fn next_key(due: Instant) -> io::Result<Option<Key>> {
    let Some(key) = keys::pressed(due)? else { return Ok(None) };
    Ok(match key.code {
        _ if keys::ends(key) => Some(Key::End),
        KeyCode::Char('r') => Some(Key::Order(Order::Rate)),
        KeyCode::Char('b') => Some(Key::Order(Order::Bytes)),
        KeyCode::Char('a') => Some(Key::Order(Order::Age)),
        _ => None,
    })
}

fn draw(canvas: &mut Canvas<'_>, frame: &Frame, fault: &str) {
    let mut head = vec![Line::from(frame.title.as_str()).bold()];
    let warning = if fault.is_empty() { &frame.warning } else { fault };
    head.push(Line::from(warning).style(Style::new().fg(Color::Red)));
    head.extend(frame.facts.iter().map(|(name, fact)| {
        Line::from(vec![Span::from(format!("{name:12}")).dim(), Span::from(fact.as_str())])
    }));
    let verdicts = frame.verdicts.iter().map(|(name, count)| format!("{name} {count}"));
    let verdicts = verdicts.collect::<Vec<_>>().join("; ");
    if !verdicts.is_empty() {
        head.push(Line::from(vec![Span::from("verdicts    ").dim(), Span::from(verdicts)]));
    }
    let head = Paragraph::new(head).wrap(ratatui::widgets::Wrap { trim: false });
    // Verdicts may take a second line.
    let height = head.line_count(canvas.area().width).min(12) as u16;
    let [top, middle, bottom] = Layout::vertical([
        Constraint::Length(height + 1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(canvas.area());
    canvas.render_widget(head, top);
    canvas.render_widget(flow_table(frame), middle);
    let foot = format!("{} of {} open flows; {KEYS}", frame.flows.len(), frame.open);
    canvas.render_widget(Paragraph::new(foot).dim(), bottom);
}

fn flow_table(frame: &Frame) -> Table<'_> {
    let width = |column: usize| {
        let cells = frame.flows.iter().map(|row| row[column].chars().count());
        cells.chain([HEADINGS[column].len()]).max().unwrap_or(0) as u16
    };
    let widths = (0..HEADINGS.len()).map(|column| Constraint::Length(width(column)));
    let right = |column: usize, cell: &str| {
        let line = Line::from(cell.to_owned());
        if column < 2 { line } else { line.right_aligned() }
    };
    let line = |row: &[&str]| {
        Row::new(
            row.iter().enumerate().map(|(column, cell)| right(column, cell)).collect::<Vec<_>>(),
        )
    };
    let rows = frame.flows.iter().map(|row| line(&row.each_ref().map(String::as_str)));
    Table::new(rows.collect::<Vec<_>>(), widths)
        .header(line(&HEADINGS).style(Style::new().reversed()))
        .column_spacing(2)
}
