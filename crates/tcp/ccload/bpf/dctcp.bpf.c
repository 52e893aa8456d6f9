// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "glue.h"
#include "dctcp.h"

GLUE_INIT(dctcp)
GLUE_MEASURE(dctcp)
GLUE_GROW(dctcp)
GLUE_REDUCE(dctcp)
GLUE_STATE(dctcp)

/* The receiving side (RFC 8257, section 3.2): the kernel tells of each packet that comes in, whether
 * it had met CE. */
SEC("struct_ops")
void BPF_PROG(dctcp_came_in, struct sock *sk, enum tcp_ca_event event)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;
	struct dctcp *state = STATE(dctcp, sk);
	struct tcp_sock *tp = TCP(sk);
	bool ce = event == CA_EVENT_ECN_IS_CE;

	if (event != CA_EVENT_ECN_IS_CE && event != CA_EVENT_ECN_NO_CE)
		return;
	if (dctcp_received(state, ce) && icsk->icsk_ack.pending & ICSK_ACK_TIMER)
		bpf_tcp_send_ack(tp, state->received_to);
	state->received_to = tp->rcv_nxt;
	if (ce)
		tp->ecn_flags |= TCP_ECN_DEMAND_CWR;
	else
		tp->ecn_flags &= ~TCP_ECN_DEMAND_CWR;
}

SEC(".struct_ops") struct tcp_congestion_ops control = {
	GLUE_OPS(dctcp),
	.flags = TCP_CONG_NEEDS_ECN,
	.init = (void *)dctcp_start,
	.pkts_acked = (void *)dctcp_acked,
	.cong_avoid = (void *)dctcp_avoid,
	.cwnd_event = (void *)dctcp_came_in,
	.set_state = (void *)dctcp_changed,
};
