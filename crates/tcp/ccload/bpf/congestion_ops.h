/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What a control registers. Rust's side, which sets name and flags, is generated from this. */
#pragma once

#include <linux/types.h>

/* `flags`: any socket may use it, whatever its owner may. */
#define TCP_CONG_NON_RESTRICTED 0x1
/* It wants ECN on its connections. */
#define TCP_CONG_NEEDS_ECN 0x2

enum tcp_ca_event {
	CA_EVENT_TX_START,
	CA_EVENT_CWND_RESTART,
	CA_EVENT_COMPLETE_CWR,
	CA_EVENT_LOSS,
	CA_EVENT_ECN_NO_CE,
	CA_EVENT_ECN_IS_CE,
};

struct sock;
struct ack_sample;
struct rate_sample;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* The members that a control here may have; the loader finds each by its name. */
struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	void (*set_state)(struct sock *sk, __u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event ev);
	void (*in_ack_event)(struct sock *sk, __u32 flags);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	__u32 (*min_tso_segs)(struct sock *sk);
	void (*cong_control)(struct sock *sk, __u32 ack, int flag, const struct rate_sample *rs);
	__u32 (*undo_cwnd)(struct sock *sk);
	__u32 (*sndbuf_expand)(struct sock *sk);
	char name[16];
	__u32 flags;
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
};

#pragma clang attribute pop
