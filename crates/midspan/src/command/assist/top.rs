//! `midspan assist top`: what a running daemon or agent knows, once or live.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use midspan_assist::agent::AgentStatus;
use midspan_assist::control::{Answer, Request};
use midspan_assist::daemon::DaemonStatus;
use ratatui::Frame as Canvas;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::{ask, metrics, text};
use crate::command::keys;

/// Between looks.
const INTERVAL: Duration = Duration::from_secs(1);
const KEYS: &str = "q ends";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The daemon's or agent's control socket
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,
    /// Show it once, and not every second until stopped
    #[arg(long)]
    once: bool,
    /// Show it once, as JSON
    #[arg(long)]
    json: bool,
    /// Print what there is to measure once, as OpenMetrics text
    #[arg(long, conflicts_with = "json")]
    metrics: bool,
}

/// Who was asked, and what it knows.
enum Status {
    Daemon(Box<DaemonStatus>),
    Agent(Box<AgentStatus>),
}

/// Shows it as asked for.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let status = look(&arguments.socket)?;
    match (&status, arguments) {
        (Status::Daemon(status), Arguments { json: true, .. }) => {
            println!("{}", serde_json::to_string_pretty(status)?);
        }
        (Status::Agent(status), Arguments { json: true, .. }) => {
            println!("{}", serde_json::to_string_pretty(status)?);
        }
        (Status::Daemon(status), Arguments { metrics: true, .. }) => {
            print!("{}", metrics::daemon(status));
        }
        (Status::Agent(status), Arguments { metrics: true, .. }) => {
            print!("{}", metrics::agent(status));
        }
        (_, Arguments { once: true, .. }) => print!("{}", status.text()),
        _ => live(&arguments.socket, &status)?,
    }
    Ok(())
}

fn look(socket: &Path) -> Result<Status> {
    match ask(socket, &Request::State)? {
        Answer::Daemon(status) => Ok(Status::Daemon(status)),
        Answer::Agent(status) => Ok(Status::Agent(status)),
        Answer::Done { .. } | Answer::Refused { .. } => {
            bail!("{}: it answers something else than was asked", socket.display())
        }
    }
}

impl Status {
    fn text(&self) -> String {
        match self {
            Status::Daemon(status) => text::daemon(status),
            Status::Agent(status) => text::agent(status),
        }
    }
}

/// In the terminal, until the user ends it.
fn live(socket: &Path, first: &Status) -> Result<()> {
    let mut terminal = ratatui::try_init()?;
    let result = show(&mut terminal, socket, first.text());
    ratatui::try_restore()?;
    result
}

fn show(terminal: &mut ratatui::DefaultTerminal, socket: &Path, mut text: String) -> Result<()> {
    let mut due = Instant::now() + INTERVAL;
    let mut fault = String::new();
    loop {
        terminal.draw(|canvas| draw(canvas, &text, &fault))?;
        if keys::pressed(due)?.is_some_and(keys::ends) {
            return Ok(());
        }
        if Instant::now() >= due {
            due = Instant::now() + INTERVAL;
            // What was known last stands there until it can be reached again.
            fault = match look(socket) {
                Ok(status) => {
                    text = status.text();
                    String::new()
                }
                Err(error) => format!("{error:#}"),
            };
        }
    }
}

fn draw(canvas: &mut Canvas<'_>, text: &str, fault: &str) {
    let [top, middle, bottom] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)])
            .areas(canvas.area());
    let fault = Line::from(fault).style(Style::new().fg(Color::Red));
    canvas.render_widget(Paragraph::new(fault), top);
    let lines = text.lines().map(|line| match text::is_heading(line) {
        true => Line::from(line).reversed(),
        false => Line::from(line),
    });
    canvas.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), middle);
    canvas.render_widget(Paragraph::new(KEYS).dim(), bottom);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::style::Modifier;

    use super::*;

    #[test]
    fn the_screen_has_the_text_its_headings_and_what_is_wrong() {
        let mut terminal = Terminal::new(TestBackend::new(120, 20)).unwrap();
        let text = text::agent(&text::tests::agent_status());
        terminal.draw(|canvas| draw(canvas, &text, "the agent is gone")).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| -> String { (0..120).map(|x| buffer[(x, y)].symbol()).collect() };
        assert!(line(0).starts_with("the agent is gone"), "{}", line(0));
        for (y, expected) in (1..).zip(text.lines()) {
            assert_eq!(line(y).trim_end(), expected.trim_end());
            let is_reversed = buffer[(0, y)].modifier.contains(Modifier::REVERSED);
            assert_eq!(is_reversed, expected.starts_with("daemon") || expected.starts_with("UE"));
        }
        assert!(line(19).starts_with("q ends"));
    }
}
