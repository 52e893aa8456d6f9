/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Which leg of a split connection a packet belongs to, and the firewall marks that say so. Connection tracking knows
 * both legs by the same addresses and ports, and must be told them apart (`interception/legs.rs`). */
#pragma once

#include "kernel.h"
#include "intf.h"

/* In the order of their marks. */
enum leg { CLIENT_LEG, SERVER_LEG };

/* Of packets to be delivered on this host. */
static __always_inline __u32 mark_of(const struct settings *set, enum leg leg)
{
	return set->mark + leg;
}

/* Whether this program has seen the packet before. */
static __always_inline bool is_delivered(const struct __sk_buff *skb, const struct settings *set)
{
	return skb->mark == mark_of(set, SERVER_LEG) || skb->mark == mark_of(set, CLIENT_LEG);
}

/* The mark of client legs' own packets on their way out: listeners have it (SO_MARK), and what they accept. */
static __always_inline __u32 outgoing_mark(const struct settings *set)
{
	return set->mark + 2;
}

static __always_inline enum leg leg_of(struct bpf_sock *socket, const struct settings *set)
{
	struct tcp_timewait_sock *former;
	struct bpf_sock *full;
	__u32 mark = 0;

	switch (socket->state) {
	/* Only a listener makes such. */
	case BPF_TCP_NEW_SYN_RECV:
		return CLIENT_LEG;
	case BPF_TCP_TIME_WAIT:
		former = bpf_skc_to_tcp_timewait_sock(socket);
		if (former)
			mark = former->tw_sk.tw_mark;
		break;
	default:
		full = bpf_sk_fullsock(socket);
		/* Volatile, or both reads become one at a computed offset, which the verifier refuses. */
		if (full)
			mark = *(volatile __u32 *)&full->mark;
	}
	return mark == outgoing_mark(set) ? CLIENT_LEG : SERVER_LEG;
}
