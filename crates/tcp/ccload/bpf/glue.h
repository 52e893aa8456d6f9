/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* From a kernel socket to `struct cc` and back. */
#pragma once

#include "kernel.h"

#include "cc.h"

/* Set by the loader before the programs are loaded. */
SEC(".rodata.config") const volatile struct cc_config config = CC_CONFIG_DEFAULT;

#define TCP(sk) ((struct tcp_sock *)(sk))
/* An algorithm's state lives in the socket, which has 104 bytes for it, zero at the start. */
#ifndef STATE
#define STATE(algo, sk)                                                                            \
	({                                                                                         \
		_Static_assert(sizeof(struct algo) <= 104, #algo " does not fit into a socket");   \
		(struct algo *)((struct inet_connection_sock *)(sk))->icsk_ca_priv;                \
	})
#endif
/* What NetAssist says: nothing, unless the control asks for it (assisted.h). */
#ifndef FEEDBACK
#define FEEDBACK(sk) ((struct cc_feedback){ 0 })
#endif
/* What a control does with the pacing rate of its answer. */
#ifndef SET_PACING
#define SET_PACING(sk, cc)
#endif

static __always_inline u32 in_flight(struct tcp_sock *tp)
{
	return tp->packets_out - tp->sacked_out - tp->lost_out + tp->retrans_out;
}

/* RFC 7661, as the stack sees it: in slow start a window half used may grow too. */
static __always_inline bool cwnd_limited(struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return true;
	return tp->snd_cwnd < tp->snd_ssthresh && tp->snd_cwnd < 2 * tp->max_packets_out;
}

static __always_inline struct cc connection(struct sock *sk)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;
	struct tcp_sock *tp = TCP(sk);
	u32 rtt_min = tp->rtt_min.s[0].v;

	return (struct cc){
		.cwnd = tp->snd_cwnd,
		.ssthresh = tp->snd_ssthresh,
		.pacing_rate = sk->sk_pacing_rate,
		.now_ns = tp->tcp_mstamp * NSEC_PER_USEC,
		.mss = tp->mss_cache,
		.state = BPF_CORE_READ_BITFIELD(icsk, icsk_ca_state),
		.cwnd_most = tp->snd_cwnd_clamp,
		.in_flight = in_flight(tp),
		.delivered = tp->delivered,
		.delivered_ce = tp->delivered_ce,
		.lost = tp->lost,
		.snd_una = tp->snd_una,
		.snd_nxt = tp->snd_nxt,
		.srtt_us = tp->srtt_us >> 3,
		.min_rtt_us = rtt_min == NO_RTT_MIN ? 0 : rtt_min,
		.config = {
			.hystart = config.hystart,
			.cubic_constant_alpha = config.cubic_constant_alpha,
			.cubic_fast_convergence = config.cubic_fast_convergence,
			.me_initial_rate = config.me_initial_rate,
		},
	};
}

/* Window, threshold and rate, as the algorithm wants them. */
static __always_inline void answer(struct sock *sk, const struct cc *cc)
{
	struct tcp_sock *tp = TCP(sk);

	/* A control of somebody else's may answer with any window, and the stack has no use for none. */
	tp->snd_cwnd = max32(cc->cwnd, 1);
	tp->snd_ssthresh = cc->ssthresh;
	SET_PACING(sk, cc);
}

static __always_inline u32 positive(long value)
{
	return value > 0 ? narrow(value) : 0;
}

static __always_inline enum cc_event event_of(enum tcp_ca_event event)
{
	switch (event) {
	case CA_EVENT_TX_START:
		return CC_TX_START;
	case CA_EVENT_CWND_RESTART:
		return CC_CWND_RESTART;
	default:
		return CC_REDUCED;
	}
}

/* Whether the threshold is none that a control answers with: a Linux 6.18 was seen not to run a control's programs
 * over one task of its own (docs/explanation/congestion-control.md), and to take what was left on its stack for their answer.
 * Threshold and window are then what they were before. */
static __always_inline bool is_unanswered(struct sock *sk, struct cc *cc)
{
	struct tcp_sock *tp = TCP(sk);

	if (cc->cwnd > CC_CWND_MOST)
		cc->cwnd = cc_window(cc, tp->prior_cwnd);
	if (cc->ssthresh <= CC_SSTHRESH_INFINITE)
		return false;
	cc->ssthresh = tp->prior_ssthresh ?: CC_SSTHRESH_INFINITE;
	return true;
}

/* Asks an algorithm of CC_WINDOW again, before the stack reduces or grows the window. */
#define MEND(algo, state, sk, cc)                                                                  \
	({                                                                                         \
		u32 cwnd;                                                                          \
                                                                                                   \
		if (is_unanswered(sk, &(cc))) {                                                    \
			cwnd = (cc).cwnd;                                                          \
			(cc).cwnd = cc_window(&(cc), TCP(sk)->prior_cwnd);                         \
			(cc).ssthresh = algo##_ssthresh(state, &(cc));                             \
			(cc).cwnd = min32(cwnd, (cc).ssthresh);                                    \
		}                                                                                  \
	})

/* Programs of an algorithm, each calling one function of its header. */

#define GLUE_INIT(algo)                                                                            \
	SEC("struct_ops") void BPF_PROG(algo##_start, struct sock *sk)                             \
	{                                                                                          \
		struct algo *state = STATE(algo, sk);                                              \
		struct cc cc = connection(sk);                                                     \
                                                                                                   \
		if (!state)                                                                        \
			return;                                                                    \
		algo##_init(state, &cc);                                                           \
		answer(sk, &cc);                                                                   \
	}

#define GLUE_MEASURE(algo)                                                                         \
	SEC("struct_ops")                                                                          \
	void BPF_PROG(algo##_acked, struct sock *sk, const struct ack_sample *ack)                 \
	{                                                                                          \
		struct algo *state = STATE(algo, sk);                                              \
		struct cc cc = connection(sk);                                                     \
		struct cc_sample sample = {                                                        \
			.acked = ack->pkts_acked,                                                  \
			.advanced = ack->pkts_acked,                                               \
			.rtt_us = positive(ack->rtt_us),                                           \
			.cwnd_limited = cwnd_limited(TCP(sk)),                                     \
			.feedback = FEEDBACK(sk),                                                  \
		};                                                                                 \
                                                                                                   \
		if (!state)                                                                        \
			return;                                                                    \
		MEND(algo, state, sk, cc);                                                         \
		algo##_measure(state, &cc, &sample);                                               \
		answer(sk, &cc);                                                                   \
	}

/* For an algorithm that measures nothing. */
#define GLUE_MEND(algo)                                                                            \
	SEC("struct_ops")                                                                          \
	void BPF_PROG(algo##_acked, struct sock *sk, const struct ack_sample *ack)                 \
	{                                                                                          \
		struct algo *state = STATE(algo, sk);                                              \
		struct cc cc = connection(sk);                                                     \
                                                                                                   \
		if (!state)                                                                        \
			return;                                                                    \
		MEND(algo, state, sk, cc);                                                         \
		answer(sk, &cc);                                                                   \
	}

#define GLUE_GROW(algo)                                                                            \
	SEC("struct_ops")                                                                          \
	void BPF_PROG(algo##_avoid, struct sock *sk, __u32 ack, __u32 acked)                       \
	{                                                                                          \
		struct algo *state = STATE(algo, sk);                                              \
		struct cc cc = connection(sk);                                                     \
		struct cc_sample sample = {                                                        \
			.acked = acked,                                                            \
			.cwnd_limited = cwnd_limited(TCP(sk)),                                     \
			.feedback = FEEDBACK(sk),                                                  \
		};                                                                                 \
                                                                                                   \
		if (!state)                                                                        \
			return;                                                                    \
		algo##_grow(state, &cc, &sample);                                                  \
		answer(sk, &cc);                                                                   \
	}

#define GLUE_REDUCE(algo)                                                                          \
	SEC("struct_ops") __u32 BPF_PROG(algo##_threshold, struct sock *sk)                        \
	{                                                                                          \
		struct algo *state = STATE(algo, sk);                                              \
		struct cc cc = connection(sk);                                                     \
                                                                                                   \
		if (!state)                                                                        \
			return cc_fraction(&cc, 1, 2);                                             \
		return max32(algo##_ssthresh(state, &cc), 1);                                      \
	}                                                                                          \
	SEC("struct_ops") __u32 BPF_PROG(algo##_undone, struct sock *sk)                           \
	{                                                                                          \
		struct algo *state = STATE(algo, sk);                                              \
		struct cc cc = connection(sk);                                                     \
                                                                                                   \
		if (!state)                                                                        \
			return cc.cwnd;                                                            \
		return cc_window(&cc, algo##_undo(state, &cc));                                    \
	}

/* The state is told to the algorithm before the socket has it. A timeout is told of by its state
 * too, and needs no event; what comes in is told to DCTCP alone. */
#define GLUE_EVENT(algo)                                                                           \
	SEC("struct_ops")                                                                          \
	void BPF_PROG(algo##_happened, struct sock *sk, enum tcp_ca_event event)                   \
	{                                                                                          \
		struct algo *state = STATE(algo, sk);                                              \
		struct cc cc = connection(sk);                                                     \
                                                                                                   \
		if (!state || event >= CA_EVENT_LOSS)                                              \
			return;                                                                    \
		algo##_event(state, &cc, event_of(event));                                         \
		answer(sk, &cc);                                                                   \
	}                                                                                          \
	GLUE_STATE(algo)

#define GLUE_STATE(algo)                                                                           \
	SEC("struct_ops") void BPF_PROG(algo##_changed, struct sock *sk, __u8 changed)             \
	{                                                                                          \
		struct algo *state = STATE(algo, sk);                                              \
		struct cc cc = connection(sk);                                                     \
                                                                                                   \
		if (!state)                                                                        \
			return;                                                                    \
		cc.state = changed;                                                                \
		algo##_event(state, &cc, CC_STATE);                                                \
		answer(sk, &cc);                                                                   \
	}

/* The stack asks for the number of segments whenever it is about to send, and looks at window and rate
 * after that. */
#define GLUE_SEND(algo)                                                                            \
	SEC("struct_ops") __u32 BPF_PROG(algo##_segments, struct sock *sk)                         \
	{                                                                                          \
		struct algo *state = STATE(algo, sk);                                              \
		struct cc cc = connection(sk);                                                     \
		struct cc_feedback feedback = FEEDBACK(sk);                                        \
		__u32 segments = CC_BURST_USUAL;                                                   \
                                                                                                   \
		if (!state || !feedback.bandwidth)                                                 \
			return segments;                                                           \
		segments = algo##_send(state, &cc, &feedback);                                     \
		answer(sk, &cc);                                                                   \
		return segments;                                                                   \
	}

/* What every control has; the name is the algorithm's with `ms_` before it. */
#define GLUE_OPS(algo) .name = "ms_" #algo, .ssthresh = (void *)algo##_threshold,                  \
		       .undo_cwnd = (void *)algo##_undone

char LICENSE[] SEC("license") = "Dual MIT/GPL";
