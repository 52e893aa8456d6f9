// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Reno on a kernel that does not run it when a timer asks for a threshold, and finds what was on its stack. */
#include "glue.h"
#include "reno.h"

#define FOUND 0x81104110u

/* How often it was not run. */
SEC(".bss.unanswered") __u32 unanswered;
/* When the last acknowledgement came. */
SEC(".bss.unanswered") __u64 acknowledged;

GLUE_MEND(reno)
GLUE_GROW(reno)

SEC("struct_ops") void BPF_PROG(note_acknowledgement, struct sock *sk, __u32 flags)
{
	acknowledged = TCP(sk)->tcp_mstamp;
}

SEC("struct_ops") __u32 BPF_PROG(threshold, struct sock *sk)
{
	struct cc cc = connection(sk);

	if (TCP(sk)->tcp_mstamp == acknowledged)
		return reno_ssthresh(STATE(reno, sk), &cc);
	unanswered++;
	return FOUND;
}

SEC("struct_ops") __u32 BPF_PROG(window_before, struct sock *sk)
{
	struct cc cc = connection(sk);

	return reno_undo(STATE(reno, sk), &cc);
}

SEC(".struct_ops") struct tcp_congestion_ops control = {
	.name = "ms_unanswered",
	.ssthresh = (void *)threshold,
	.undo_cwnd = (void *)window_before,
	.cong_avoid = (void *)reno_avoid,
	.pkts_acked = (void *)reno_acked,
	.in_ack_event = (void *)note_acknowledgement,
};
