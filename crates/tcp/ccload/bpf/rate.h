/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* For controls of CC_RATE: they set window and pacing rate, and have their state in the socket's storage,
 * since most do not fit into the socket. To be included before glue.h. */
#pragma once

#include "kernel.h"

#include "cc.h"

/* Linux before 6.10 calls `cong_control` with two arguments: the loader says so. */
SEC(".rodata.kernel") const volatile __u32 cong_control_arguments = 4;

static __always_inline const struct rate_sample *cong_control_sample(unsigned long long *ctx)
{
	const struct rate_sample *rs;

	/* The compiler must not join the two loads to one whose offset it computes. */
	if (cong_control_arguments == 2) {
		rs = (void *)ctx[1];
		barrier_var(rs);
	} else {
		rs = (void *)ctx[3];
		barrier_var(rs);
	}
	return rs;
}

/* 0: the control never names a rate. Then it is not paced, and has the one that Linux reckons for such, by which
 * segmentation offload takes packets together. */
#ifndef PACED
#define PACED 1
#endif

/* 0: the control does not look at the threshold, which may be anything then. */
#ifndef LOOKS_AT_THRESHOLD
#define LOOKS_AT_THRESHOLD 1
#endif

/* What else a control wants for a socket that begins with it. */
#ifndef ON_START
#define ON_START(sk)
#endif

static __always_inline void set_pacing_rate(struct sock *sk, const struct cc *cc)
{
	/* 0 is as fast as the window allows, which the kernel writes as no limit. */
	unsigned long named = PACED ? cc->pacing_rate : cc_usual_rate(cc);
	unsigned long rate = named ? named : NO_PACING_LIMIT;
	unsigned long most = sk->sk_max_pacing_rate;

	sk->sk_pacing_rate = rate < most ? rate : most;
}

#ifndef SET_PACING
#define SET_PACING(sk, cc) set_pacing_rate(sk, cc)
#endif

/* Where the algorithm's state is. */
#define RATE_STATES(algo)                                                                          \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_SK_STORAGE);                                             \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                              \
		__type(key, int);                                                                  \
		__type(value, struct algo);                                                        \
	} states SEC(".maps");

#define STATE(algo, sk) ((struct algo *)bpf_sk_storage_get(&states, sk, 0, 0))

/* A socket that has had the control before finds its former state, which is no more good. */
#define GLUE_RATE_INIT(algo)                                                                       \
	SEC("struct_ops") void BPF_PROG(algo##_start, struct sock *sk)                             \
	{                                                                                          \
		struct algo *state =                                                               \
			bpf_sk_storage_get(&states, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);           \
		struct cc cc = connection(sk);                                                     \
                                                                                                   \
		if (!state)                                                                        \
			return;                                                                    \
		__builtin_memset(state, 0, sizeof(*state));                                        \
		algo##_init(state, &cc);                                                           \
		if (PACED && sk->sk_pacing_status == SK_PACING_NONE)                               \
			sk->sk_pacing_status = SK_PACING_NEEDED;                                   \
		ON_START(sk);                                                                      \
		answer(sk, &cc);                                                                   \
	}

#define GLUE_CONTROL(algo)                                                                         \
	SEC("struct_ops") int algo##_main(unsigned long long *ctx)                                 \
	{                                                                                          \
		struct sock *sk = (void *)ctx[0];                                                  \
		const struct rate_sample *rs = cong_control_sample(ctx);                           \
		struct algo *state = STATE(algo, sk);                                              \
		struct cc cc = connection(sk);                                                     \
		struct cc_sample sample = {                                                        \
			.acked = rs->acked_sacked,                                                 \
			.rtt_us = positive(rs->rtt_us),                                            \
			.prior_in_flight = rs->prior_in_flight,                                    \
			.rate_delivered = rs->interval_us > 0 ? positive(rs->delivered) : 0,       \
			.rate_interval_us = positive(rs->interval_us),                             \
			.prior_delivered = rs->prior_delivered,                                    \
			.app_limited = rs->is_app_limited,                                         \
			.cwnd_limited = cwnd_limited(TCP(sk)),                                     \
			.feedback = FEEDBACK(sk),                                                  \
		};                                                                                 \
                                                                                                   \
		if (!state)                                                                        \
			return 0;                                                                  \
		if (LOOKS_AT_THRESHOLD)                                                            \
			is_unanswered(sk, &cc);                                                    \
		algo##_control(state, &cc, &sample);                                               \
		answer(sk, &cc);                                                                   \
		return 0;                                                                          \
	}
