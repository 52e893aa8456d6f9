// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "cap.h"
#include "marks.h"
#include "glue.h"
#include "me.h"

/* The kernel does not pace the first packets of a connection. A policer whose bucket holds one packet
 * drops the second of any two that come together, so until then there is one in flight. */
#define UNPACED_PACKETS 10

static __always_inline void hold_back(struct sock *sk)
{
	struct tcp_sock *tp = TCP(sk);

	if (tp->data_segs_out < UNPACED_PACKETS)
		tp->snd_cwnd = 1;
}

GLUE_REDUCE(me)
GLUE_STATE(me)

SEC("struct_ops") void BPF_PROG(me_start, struct sock *sk)
{
	struct cc cc = connection(sk);

	me_init(STATE(me, sk), &cc);
	answer(sk, &cc);
	hold_back(sk);
	want_marks(sk);
}

SEC("struct_ops")
void BPF_PROG(me_acked, struct sock *sk, const struct ack_sample *ack)
{
	struct cc cc = connection(sk);
	struct cc_sample sample = { .acked = ack->pkts_acked, .rtt_us = positive(ack->rtt_us) };

	read_marks(sk, cc.snd_una, &sample);
	me_measure(STATE(me, sk), &cc, &sample);
	answer(sk, &cc);
}

SEC("struct_ops") void BPF_PROG(me_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct cc cc = connection(sk);
	struct cc_sample sample = { .acked = acked, .cwnd_limited = cwnd_limited(TCP(sk)) };

	me_grow(STATE(me, sk), &cc, &sample);
	answer(sk, &cc);
	hold_back(sk);
}

/* No packets in pairs either. */
SEC("struct_ops") __u32 BPF_PROG(me_segments, struct sock *sk)
{
	return 1;
}

SEC(".struct_ops") struct tcp_congestion_ops control = {
	GLUE_OPS(me),
	.init = (void *)me_start,
	.pkts_acked = (void *)me_acked,
	.cong_avoid = (void *)me_avoid,
	.set_state = (void *)me_changed,
	.min_tso_segs = (void *)me_segments,
};
