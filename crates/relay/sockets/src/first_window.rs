//! What connections begin with, which no option of a socket gives.

use midspan_config::Config;
use midspan_steer::FirstWindow;

/// What sets initial windows, if it may be had.
pub fn first_window(config: &Config) -> Option<FirstWindow> {
    match FirstWindow::attach() {
        Ok(program) => Some(program),
        Err(error) => {
            let (client, server) = (&config.client_leg, &config.server_leg);
            let asked_for = client.initial_window.or(client.initial_window_beside);
            match asked_for.or(server.initial_window) {
                Some(_) => tracing::warn!("{error}: the kernel's hold"),
                None => tracing::info!("{error}: the kernel's hold"),
            }
            None
        }
    }
}
