//! Congestion controls that are written in Python.

use std::collections::BTreeMap;
use std::sync::Arc;

use midspan_cc::external::{Call, Decide, Externals, Maker, Window};
use midspan_cc::{Connection, Control, Kind, RateSample, Sample, State};
use midspan_units::{Rate, Span, Time};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::Failure;

/// What of `midspan.CongestionControl` the stack reads and writes. Windows may have a part of a packet, which is not sent.
#[pyclass(subclass, module = "midspan._midspan")]
pub(crate) struct ControlBase {
    cwnd: f64,
    ssthresh: f64,
    pacing_rate: Option<f64>,
    #[pyo3(get)]
    prior_cwnd: f64,
    #[pyo3(get)]
    state: &'static str,
    #[pyo3(get)]
    now: f64,
    #[pyo3(get)]
    mss: u32,
    #[pyo3(get)]
    in_flight: u32,
    #[pyo3(get)]
    delivered: u32,
    #[pyo3(get)]
    delivered_ce: u32,
    #[pyo3(get)]
    lost: u32,
    #[pyo3(get)]
    snd_una: u32,
    #[pyo3(get)]
    snd_nxt: u32,
    #[pyo3(get)]
    srtt: Option<f64>,
    #[pyo3(get)]
    min_rtt: Option<f64>,
}

/// An acknowledgement, as a control is told of it.
#[pyclass(frozen, get_all, module = "midspan._midspan")]
pub(crate) struct Ack {
    acked: u32,
    advanced: u32,
    rtt: Option<f64>,
    prior_in_flight: u32,
    delivery_rate: Option<f64>,
    interval: Option<f64>,
    prior_delivered: u32,
    tx_in_flight: u32,
    tx_lost: u32,
    app_limited: bool,
    cwnd_limited: bool,
    ece: bool,
    wla: bool,
}

/// Bit/s; the stack counts whole bytes.
const RATES: std::ops::RangeInclusive<f64> = 8.0..=1e15;

#[pymethods]
impl ControlBase {
    /// Arguments are the subclass's own.
    #[new]
    #[pyo3(signature = (*_args, **_settings))]
    fn new(_args: &Bound<'_, PyAny>, _settings: Option<&Bound<'_, PyAny>>) -> ControlBase {
        ControlBase {
            cwnd: 10.0,
            ssthresh: f64::INFINITY,
            pacing_rate: None,
            prior_cwnd: 0.0,
            state: "open",
            now: 0.0,
            mss: 0,
            in_flight: 0,
            delivered: 0,
            delivered_ce: 0,
            lost: 0,
            snd_una: 0,
            snd_nxt: 0,
            srtt: None,
            min_rtt: None,
        }
    }

    #[getter]
    fn cwnd(&self) -> f64 {
        self.cwnd
    }

    #[setter]
    fn set_cwnd(&mut self, packets: f64) -> PyResult<()> {
        let most = f64::from(Control::CWND_MOST);
        if !(1.0..=most).contains(&packets) {
            let what = format!("a congestion window has 1 to {most} packets, not {packets}");
            return Err(PyValueError::new_err(what));
        }
        self.cwnd = packets;
        Ok(())
    }

    #[getter]
    fn ssthresh(&self) -> f64 {
        self.ssthresh
    }

    #[setter]
    fn set_ssthresh(&mut self, packets: f64) -> PyResult<()> {
        // What is no number is not there either.
        if !(1.0..).contains(&packets) {
            let what = format!("a slow start threshold has at least 1 packet, not {packets}");
            return Err(PyValueError::new_err(what));
        }
        self.ssthresh = packets;
        Ok(())
    }

    #[getter]
    fn pacing_rate(&self) -> Option<f64> {
        self.pacing_rate
    }

    #[setter]
    fn set_pacing_rate(&mut self, rate: Option<f64>) -> PyResult<()> {
        if let Some(rate) = rate.filter(|rate| !RATES.contains(rate)) {
            let (least, most) = RATES.into_inner();
            let what = format!("a pacing rate is {least} to {most:e} bit/s or None, not {rate}");
            return Err(PyValueError::new_err(what));
        }
        self.pacing_rate = rate;
        Ok(())
    }
}

impl ControlBase {
    /// Takes over what the stack has. What it has left alone keeps its part of a packet.
    fn tell(&mut self, window: &Window, connection: &Connection, state: State) {
        let seconds = |span: Span| (span > Span::ZERO).then(|| span.as_secs_f64());
        if self.cwnd as u32 != window.cwnd {
            self.cwnd = f64::from(window.cwnd);
        }
        if threshold(self.ssthresh) != window.ssthresh {
            self.ssthresh = match window.ssthresh {
                Control::SSTHRESH_INFINITE.. => f64::INFINITY,
                packets => f64::from(packets),
            };
        }
        self.state = match state {
            State::Open => "open",
            State::Disorder => "disorder",
            State::Cwr => "cwr",
            State::Recovery => "recovery",
            State::Loss => "loss",
        };
        self.now = connection.now.since(Time::ZERO).as_secs_f64();
        self.mss = connection.mss;
        self.in_flight = connection.in_flight;
        self.delivered = connection.delivered;
        self.delivered_ce = connection.delivered_ce;
        self.lost = connection.lost;
        self.snd_una = connection.snd_una;
        self.snd_nxt = connection.snd_nxt;
        self.srtt = seconds(connection.srtt);
        self.min_rtt = seconds(connection.min_rtt);
    }

    /// What the stack is to have.
    fn window(&self) -> Window {
        Window {
            cwnd: self.cwnd as u32,
            ssthresh: threshold(self.ssthresh),
            pacing_rate: self.pacing_rate.map(|rate| Rate::from_bps(rate as u64)),
        }
    }
}

/// In whole packets, as the stack has it.
fn threshold(packets: f64) -> u32 {
    (packets as u32).min(Control::SSTHRESH_INFINITE)
}

impl Ack {
    /// `mss` is in bytes.
    fn new(sample: &Sample, mss: u32) -> Ack {
        let rate = sample.rate.as_ref();
        let delivery_rate = |rate: &RateSample| {
            let bits = f64::from(rate.delivered) * f64::from(mss) * 8.0;
            bits / rate.interval.as_secs_f64()
        };
        Ack {
            acked: sample.acked,
            advanced: sample.advanced,
            rtt: sample.rtt.map(Span::as_secs_f64),
            prior_in_flight: sample.prior_in_flight,
            delivery_rate: rate.map(delivery_rate),
            interval: rate.map(|rate| rate.interval.as_secs_f64()),
            prior_delivered: rate.map_or(0, |rate| rate.prior_delivered),
            tx_in_flight: rate.map_or(0, |rate| rate.tx_in_flight),
            tx_lost: rate.map_or(0, |rate| rate.tx_lost),
            app_limited: rate.is_some_and(|rate| rate.app_limited),
            cwnd_limited: sample.cwnd_limited,
            ece: sample.ece,
            wla: sample.wla,
        }
    }
}

/// What makes controls by the Python callables in `controls`: each is called with a `seed`, and answers a
/// `midspan.CongestionControl`.
pub(crate) fn controls(controls: BTreeMap<String, Py<PyAny>>, failure: &Failure) -> Externals {
    let maker = |(name, class): (String, Py<PyAny>)| {
        let (failure, of) = (failure.clone(), name.clone());
        let make: Maker = Arc::new(move |seed| {
            let made = Python::attach(|py| Written::new(py, &class, &of, seed));
            let written = made.map_err(|error| failure.keep(error)).ok();
            Box::new(Guarded { written, failure: failure.clone() })
        });
        (name, make)
    };
    controls.into_iter().map(maker).collect()
}

/// A control, and its methods by what they are called for.
struct Written {
    control: Py<ControlBase>,
    kind: Kind,
    on_established: Option<Py<PyAny>>,
    on_measure: Option<Py<PyAny>>,
    on_ack: Option<Py<PyAny>>,
    on_loss: Option<Py<PyAny>>,
    on_ecn: Option<Py<PyAny>>,
    on_timeout: Option<Py<PyAny>>,
    on_reduced: Option<Py<PyAny>>,
    on_undo: Option<Py<PyAny>>,
    on_transmit_start: Option<Py<PyAny>>,
    on_restart: Option<Py<PyAny>>,
}

impl Written {
    fn new(py: Python<'_>, class: &Py<PyAny>, name: &str, seed: u64) -> PyResult<Written> {
        let settings = PyDict::new(py);
        settings.set_item("seed", seed)?;
        let made = class.bind(py).call((), Some(&settings))?;
        let base = py.import("midspan.control")?.getattr("CongestionControl")?;
        if !made.is_instance(&base)? {
            let what = made.get_type().name()?;
            let what = format!("`{name}` must make a midspan.CongestionControl, not {what}");
            return Err(PyTypeError::new_err(what));
        }
        let class = made.get_type();
        // Python itself would say so of classes that are not built in.
        let missing: Vec<String> = class
            .getattr("__abstractmethods__")?
            .try_iter()?
            .map(|name| name?.extract())
            .collect::<PyResult<_>>()?;
        if !missing.is_empty() {
            let what = format!("{} has no {}", class.name()?, missing.join(", "));
            return Err(PyTypeError::new_err(what));
        }
        // What does nothing is not called.
        let its_own = |method: &str| -> PyResult<Option<Py<PyAny>>> {
            if class.getattr(method)?.is(&base.getattr(method)?) {
                return Ok(None);
            }
            Ok(Some(made.getattr(method)?.unbind()))
        };
        let method = |method: &str| made.getattr(method).map(|of| Some(of.unbind()));
        let owns_window: bool = made.getattr("owns_window")?.extract()?;
        Ok(Written {
            kind: if owns_window { Kind::Rate } else { Kind::Window },
            on_established: its_own("on_established")?,
            on_measure: its_own("on_measure")?,
            on_ack: method("on_ack")?,
            on_loss: method("on_loss")?,
            on_ecn: method("on_ecn")?,
            on_timeout: method("on_timeout")?,
            on_reduced: its_own("on_reduced")?,
            on_undo: method("on_undo")?,
            on_transmit_start: its_own("on_transmit_start")?,
            on_restart: its_own("on_restart")?,
            control: made.cast_into::<ControlBase>()?.unbind(),
        })
    }

    /// The method for a call, if there is one, and the acknowledgement that it is told.
    fn method<'a>(&self, call: Call<'a>) -> Option<(&Py<PyAny>, Option<&'a Sample>)> {
        let (method, sample) = match call {
            Call::Established => (&self.on_established, None),
            Call::Measure(sample) => (&self.on_measure, Some(sample)),
            Call::Ack(sample) => (&self.on_ack, Some(sample)),
            Call::Reduction(State::Loss) => (&self.on_timeout, None),
            Call::Reduction(State::Cwr) => (&self.on_ecn, None),
            Call::Reduction(_) => (&self.on_loss, None),
            Call::Reduced => (&self.on_reduced, None),
            Call::Undo => (&self.on_undo, None),
            Call::TransmitStart => (&self.on_transmit_start, None),
            Call::Restart => (&self.on_restart, None),
        };
        method.as_ref().map(|method| (method, sample))
    }

    fn ask(
        &self,
        py: Python<'_>,
        window: &mut Window,
        connection: &Connection,
        state: State,
        call: Call<'_>,
    ) -> PyResult<()> {
        let Some((method, sample)) = self.method(call) else { return Ok(()) };
        let control = self.control.bind(py);
        {
            let mut control = control.try_borrow_mut()?;
            control.tell(window, connection, state);
            if matches!(call, Call::Reduction(_)) {
                control.prior_cwnd = control.cwnd;
            }
        }
        match sample {
            Some(sample) => method.call1(py, (Ack::new(sample, connection.mss),))?,
            None => method.call0(py)?,
        };
        *window = control.try_borrow()?.window();
        Ok(())
    }
}

/// A control that does nothing more once something has failed.
struct Guarded {
    written: Option<Written>,
    failure: Failure,
}

impl Decide for Guarded {
    fn kind(&self) -> Kind {
        self.written.as_ref().map_or(Kind::Rate, |written| written.kind)
    }

    fn decide(
        &mut self,
        window: &mut Window,
        connection: &Connection,
        state: State,
        call: Call<'_>,
    ) {
        if let Some(written) = &self.written
            && !self.failure.happened()
        {
            let asked = Python::attach(|py| written.ask(py, window, connection, state, call));
            if let Err(error) = asked {
                self.failure.keep(error);
            }
        }
        if self.failure.happened() {
            *window = Window { cwnd: 1, ssthresh: 1, pacing_rate: None };
        }
    }
}
