/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the network has marked on the acknowledgements of a socket, for TCP-ME. A program at the socket's
 * ingress sees the packets come in, before TCP does, and leaves in the socket's storage what they bore;
 * the control finds there what the acknowledgement bore that it is told of.
 *
 * Between the two a packet may wait for whoever holds the socket, and others come meanwhile. So marks are
 * kept by acknowledgement number; those of duplicates add up, as TCP-ME takes them (me.h). */
#pragma once

#include "kernel.h"

#include "cc.h"

/* Acknowledgement numbers kept: of two a power. Those that come in one go and are not told of yet. */
#define MARKS_KEPT 16u

#define MARK_SEEN 1 /* an acknowledgement of this number has come */
#define MARK_WLA 2  /* CE on a pure one: a base station's, as no sender sets ECT on those */
#define MARK_ECE 4  /* ECN-Echo in its TCP header */

struct marks {
	u32 ack[MARKS_KEPT];
	u8 mark[MARKS_KEPT];
	u32 last; /* where the newest is */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct marks);
} marks SEC(".maps");

/* Has the marks of this socket's acknowledgements be kept. */
static __always_inline void want_marks(struct sock *sk)
{
	bpf_sk_storage_get(&marks, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
}

/* The marks of the acknowledgement that has come last to TCP, and of its duplicates. */
static __always_inline void read_marks(struct sock *sk, u32 snd_una, struct cc_sample *sample)
{
	struct marks *kept = bpf_sk_storage_get(&marks, sk, 0, 0);

	if (!kept)
		return;
	for (u32 back = 0; back < MARKS_KEPT; back++) {
		u32 at = (kept->last - back) % MARKS_KEPT;

		if (!kept->mark[at] || kept->ack[at] != snd_una)
			continue;
		sample->wla = !!(kept->mark[at] & MARK_WLA);
		sample->ece = !!(kept->mark[at] & MARK_ECE);
		return;
	}
}

/* An acknowledgement of `ack` has come in. */
static __always_inline void note_marks(struct marks *kept, u32 ack, u8 mark)
{
	u32 at = kept->last % MARKS_KEPT;

	if (!kept->mark[at] || kept->ack[at] != ack) {
		at = (at + 1) % MARKS_KEPT;
		/* Not found while it is half written. */
		kept->mark[at] = 0;
		kept->ack[at] = ack;
		kept->last = at;
	}
	kept->mark[at] |= MARK_SEEN | mark;
}

#define CE 3
#define TCP_FLAG_ECE 0x40
#define TCP_FLAG_SYN_RST 0x06
#define TCP_FLAG_ACK 0x10

/* At the ingress of every TCP socket of a control group. Lets everything pass. */
SEC("cgroup_skb/ingress") int marks_seen(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct marks *kept;
	u8 ip[20], tcp[14], ecn, mark = 0;
	u32 header;

	if (!sk)
		return 1;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return 1;
	/* Only sockets of this control have one. */
	kept = bpf_sk_storage_get(&marks, sk, 0, 0);
	if (!kept || bpf_skb_load_bytes(skb, 0, ip, sizeof(ip)))
		return 1;
	if (ip[0] >> 4 == 4) {
		header = (ip[0] & 0xf) * 4;
		ecn = ip[1] & 3;
	} else {
		/* Without extension headers, as acknowledgements are. */
		if (ip[6] != IPPROTO_TCP)
			return 1;
		header = 40;
		ecn = (ip[1] >> 4) & 3;
	}
	if (bpf_skb_load_bytes(skb, header, tcp, sizeof(tcp)))
		return 1;
	if ((tcp[13] & (TCP_FLAG_ACK | TCP_FLAG_SYN_RST)) != TCP_FLAG_ACK)
		return 1;
	/* On data it is a router's, and the receiver's to answer. */
	if (ecn == CE && skb->len == header + (tcp[12] >> 4) * 4)
		mark |= MARK_WLA;
	if (tcp[13] & TCP_FLAG_ECE)
		mark |= MARK_ECE;
	note_marks(kept, (u32)tcp[8] << 24 | (u32)tcp[9] << 16 | (u32)tcp[10] << 8 | tcp[11], mark);
	return 1;
}
