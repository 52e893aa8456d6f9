/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* TCP-ME: Han, Ansari, Wu, Yu, "TCP-Mobile Edge: accelerating delivery in mobile networks". It tells three
 * causes of loss apart by marks on acknowledgements, and looks for the token rate of the operator's
 * policer with its sending rate.
 *
 * Where the paper leaves a choice (the flowcharts of figures 2 and 3 say no more than this):
 *   - SRI() is called by each acknowledgement that advances outside of recovery; SRD() once per
 *     recovery, for the first packet that is held lost and was sent after the last SRD().
 *   - A loss is the radio's, or congestion's, if any of the acknowledgements that told of it was marked so:
 *     the last one that advanced, and its duplicates.
 *   - An acknowledgement that is marked twice, WLA and congestion, is taken as congestion: of the two
 *     reactions New Reno's is the one that gives way to others.
 *   - An acknowledgement with the congestion mark does not call SRI(): the network is congested.
 *   - R_max is R_0 at first, so that the rate grows by C until the policer has dropped a packet.
 *   - ECN-Echo without loss, and a timeout, are answered as by New Reno; the rate stays.
 *
 * It sets its window itself (CC_RATE). The stack's own recovery sends a packet for each that is delivered even
 * where nothing is to be reduced, and so at the rate at which what was lost was delivered, below that of the
 * policer; the paper leaves the window, and with it the rate, alone there. */
#pragma once

#include "prr.h"
#include "reno.h"

/* Section III, bits per second. */
#define ME_EPSILON 50u
#define ME_C 2000u
/* beta = 0.15 and alpha = 0.9. */
#define ME_BETA_PERCENT 15u
#define ME_ALPHA_PERCENT 90u
/* Bits per second under which the rate does not fall: a packet in a second or so. */
#define ME_RATE_LEAST 10000u

struct me {
	struct reno reno;
	struct prr prr;  /* of a reduction that congestion asked for */
	u64 rate;        /* R_n, bits of payload per second */
	u64 rate_most;   /* R_max */
	u32 recover;     /* S_rec: what was sent before it was sent at a higher rate than now's */
	u32 acked_to;    /* `snd_una` at the last acknowledgement */
	u32 marks_of;    /* `snd_una` of the acknowledgements whose marks these are */
	u8 reduced;      /* SRD() was called yet: S_rec counts */
	u8 wla;          /* one of them was marked */
	u8 congested;
	u8 state;        /* the one told of last, enum cc_state */
};

/* Table I, SRI(). */
CC_INLINE void me_increase(struct me *me)
{
	if (add_sat(me->rate, ME_EPSILON) >= me->rate_most)
		me->rate = add_sat(me->rate, ME_C);
	else
		me->rate += (me->rate_most - me->rate) / 100 * ME_BETA_PERCENT +
			    (me->rate_most - me->rate) % 100 * ME_BETA_PERCENT / 100;
}

/* Table I, SRD(). */
CC_INLINE void me_decrease(struct me *me, const struct cc *cc)
{
	me->recover = cc->snd_nxt;
	me->reduced = 1;
	if (!me->wla)
		me->rate_most = me->rate;
	me->rate = max64(me->rate / 100 * ME_ALPHA_PERCENT + me->rate % 100 * ME_ALPHA_PERCENT / 100,
			 ME_RATE_LEAST);
}

CC_INLINE void me_pace(const struct me *me, struct cc *cc)
{
	cc->pacing_rate = max64(me->rate / 8, 1);
}

CC_INLINE void me_init(struct me *me, struct cc *cc)
{
	me->rate = me->rate_most = max64((u64)cc->config.me_initial_rate * 8, ME_RATE_LEAST);
	me->acked_to = me->marks_of = cc->snd_una;
	me_pace(me, cc);
}

CC_INLINE void me_measure(struct me *me, const struct cc *cc, const struct cc_sample *sample)
{
	if (me->marks_of != cc->snd_una) {
		me->marks_of = cc->snd_una;
		me->wla = me->congested = 0;
	}
	me->wla |= sample->wla;
	me->congested |= sample->ece;
}

/* Figure 2; and New Reno's window. */
CC_INLINE void me_control(struct me *me, struct cc *cc, const struct cc_sample *sample)
{
	int advanced = before(me->acked_to, cc->snd_una);
	int reducing = cc->state == CC_CWR || cc->state == CC_RECOVERY;

	me->acked_to = cc->snd_una;
	if (me->prr.recover_fs)
		cc->cwnd = prr_window(&me->prr, cc, sample);
	else if (advanced && !reducing)
		reno_grow(&me->reno, cc, sample);
	if (advanced && !reducing && !me->congested && cc->state != CC_LOSS)
		me_increase(me);
	me_pace(me, cc);
}

/* New Reno's, which `me_event` takes back where congestion was not the cause. */
CC_INLINE u32 me_ssthresh(struct me *me, struct cc *cc)
{
	prr_begin(&me->prr, cc);
	return reno_ssthresh(&me->reno, cc);
}

CC_INLINE u32 me_undo(struct me *me, struct cc *cc)
{
	me->prr.recover_fs = 0;
	return reno_undo(&me->reno, cc);
}

/* Figure 3: duplicate acknowledgements have told of a loss; the first packet lost is the first that is
 * not acknowledged. Without congestion the window stays, but for a reduction that ECN has begun before. */
CC_INLINE void me_lost(struct me *me, struct cc *cc)
{
	if (me->state != CC_CWR) {
		me->prr.recover_fs = 0;
		cc->ssthresh = max32(me->reno.prior_cwnd, CC_SSTHRESH_LEAST);
	}
	if (!me->reduced || !before(cc->snd_una, me->recover))
		me_decrease(me, cc);
}

CC_INLINE void me_event(struct me *me, struct cc *cc, enum cc_event event)
{
	if (event == CC_STATE) {
		if (cc->state == CC_RECOVERY && !me->congested)
			me_lost(me, cc);
		prr_changed(&me->prr, cc);
		me->state = (u8)cc->state;
	}
	me_pace(me, cc);
}
