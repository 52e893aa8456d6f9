// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "cap.h"
#include "marks.h"

/* The kernel gives back up to half an interval to a packet that follows one that was late: a sender that
 * waited for an acknowledgement sends its next two packets closer together than at its rate, of which a
 * policer with a bucket of one packet drops the second. So for a packet that is late already the
 * rate is lower, by as much as the kernel will take off. */
static __always_inline u64 even_rate(struct sock *sk, u64 rate, u32 mss)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	u64 late = sub_sat(tp->tcp_clock_cache, tp->tcp_wstamp_ns);
	u64 interval;

	if (!late || !rate)
		return rate;
	interval = max64(mul_div(mss, NSEC_PER_SEC, rate), 1);
	return max64(mul_div(rate, interval, interval + min64(late, interval)), 1);
}

/* New data is asked about before it is sent, below; a retransmission is not, but follows an
 * acknowledgement, after which the stack paces at its own rate and within the limit. */
#undef SET_PACING
#define SET_PACING(sk, cc) limit_pacing(sk, cc)

static __always_inline void limit_pacing(struct sock *sk, const struct cc *cc)
{
	struct cc limited = *cc;

	if (cc->state == CC_RECOVERY || cc->state == CC_LOSS)
		limited.pacing_rate = even_rate(sk, cc->pacing_rate, cc->mss);
	cap_pacing(sk, &limited);
}

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
	MEND(me, STATE(me, sk), sk, cc);
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

/* No packets in pairs either. This is asked before each one that is sent. */
SEC("struct_ops") __u32 BPF_PROG(me_segments, struct sock *sk)
{
	struct tcp_sock *tp = TCP(sk);
	struct cc cc = { .mss = tp->mss_cache };

	me_pace(STATE(me, sk), &cc);
	sk->sk_pacing_rate = even_rate(sk, cc.pacing_rate, cc.mss);
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
