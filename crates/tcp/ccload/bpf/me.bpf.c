// SPDX-License-Identifier: GPL-2.0 OR MIT
#define SET_PACING(sk, cc) pace_singly(sk, cc)
#define ON_START(sk) want_marks(sk)

#include "cap.h"
#include "marks.h"
#include "rate.h"

/* Has a packet of so much payload be followed by the next after the time that it takes at `rate`, which the
 * kernel's own pacing does not quite do, and a policer with a bucket of one packet drops a packet for each time
 * that comes too early:
 *   - It counts payload alone. `rate` is that of full packets; a small one has more of headers, and asks for more
 *     time than its payload does.
 *   - It gives back up to half of the time to a packet that follows one that was late, such as one that had
 *     waited for an acknowledgement. */
static __always_inline void space_packet(struct sock *sk, u64 rate, u32 payload)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	u32 headers = tp->tcp_header_len + (sk->__sk_common.skc_family == AF_INET6 ? 40 : 20);
	u64 full = max64(tp->mss_cache, 1), late = sub_sat(tp->tcp_clock_cache, tp->tcp_wstamp_ns);
	u64 size = mul_div(payload + headers, full, full + headers);
	u64 interval = mul_div(size, NSEC_PER_SEC, max64(rate, 1));

	sk->sk_pacing_rate = max64(mul_div(payload, NSEC_PER_SEC,
					   max64(interval + min64(late, interval), 1)), 1);
}

/* The kernel does not pace the first packets of a connection. A policer whose bucket holds one packet
 * drops the second of any two that come together, so until then there is one in flight. */
#define UNPACED_PACKETS 10

/* The algorithm's rate is the greatest, where all may read it; the pacing rate holds for what follows an
 * acknowledgement, a retransmission too. */
static __always_inline void pace_singly(struct sock *sk, const struct cc *cc)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;

	cap_pacing(sk, cc);
	space_packet(sk, cc->pacing_rate, cc->mss);
	if (tp->data_segs_out < UNPACED_PACKETS)
		tp->snd_cwnd = 1;
}

#include "glue.h"
#include "me.h"

RATE_STATES(me)
GLUE_RATE_INIT(me)
GLUE_CONTROL(me)
GLUE_REDUCE(me)
GLUE_STATE(me)

SEC("struct_ops")
void BPF_PROG(me_acked, struct sock *sk, const struct ack_sample *ack)
{
	struct me *state = STATE(me, sk);
	struct cc cc = connection(sk);
	struct cc_sample sample = { .acked = ack->pkts_acked, .rtt_us = positive(ack->rtt_us) };

	if (!state)
		return;
	read_marks(sk, cc.snd_una, &sample);
	me_measure(state, &cc, &sample);
}

/* No packets in pairs either. This is asked before each one that is sent for the first time. */
SEC("struct_ops") __u32 BPF_PROG(me_segments, struct sock *sk)
{
	struct tcp_sock *tp = TCP(sk);
	struct me *state = STATE(me, sk);
	struct cc cc = connection(sk);
	u32 unsent = tp->write_seq - tp->snd_nxt;

	if (state) {
		me_pace(state, &cc);
		space_packet(sk, cc.pacing_rate, unsent && unsent < cc.mss ? unsent : cc.mss);
	}
	return 1;
}

SEC(".struct_ops") struct tcp_congestion_ops control = {
	GLUE_OPS(me),
	.init = (void *)me_start,
	.pkts_acked = (void *)me_acked,
	.cong_control = (void *)me_main,
	.set_state = (void *)me_changed,
	.min_tso_segs = (void *)me_segments,
};
