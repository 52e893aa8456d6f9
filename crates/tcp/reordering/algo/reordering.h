/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A receiver that can wait tells its sender of a hole only when it has been there for a while: what comes late by
 * itself is then not taken for lost (delayed duplicate acknowledgements: Vaidya, Mehta, Perkins and Montenegro, 1999).
 * For how long to wait, and whether to, is learned from the holes that there were: what has filled a hole is the
 * late original if its timestamp (RFC 7323) is no younger than that of the segment which showed the hole, and a
 * retransmission else.
 *
 * Two structures: `holes` of a connection, and `lateness` of the link that its sender's segments come by, which
 * connections share. One more of the latter is kept for each network of senders: what they find first is what a new
 * one begins with. Times are in us and wrap, as sequence numbers do. */
#pragma once

#include "fixed.h"

/* Holes of a connection that are known at a time. Of others the sender is told at once. */
#define HOLES 32
/* What is left of one that was filled in part, and what was. */
#define HOLE_PARTS 3
/* No hole is kept from the sender for longer, in us: it must notice within its own least timeout (200 ms in Linux). */
#define HOLD_MOST 50000u
/* What tells of a retransmission waits no longer, in us. */
#define REPAIR_MOST (2 * HOLD_MOST)
/* Holes that are closer to each other, in bytes, are what slow start leaves that overflows a queue: of two segments that it sends
 * for each acknowledgement there is room for one. Segments come late by themselves, and seldom by chance so close. */
#define OVERFLOW_APART 4096u
/* How much a bucket of lateness holds, in us, a power of two so that verifiers know what a quotient can be; and how
 * many there are. */
#define LATENESS_STEP 1024u
#define LATENESS_BUCKETS 50
/* A hole that is older and was filled by a retransmission counts as lost, in us: the original would come too late. */
#define ORIGINAL_AWAITED HOLD_MOST
/* A hole that nothing has filled for so long is forgotten, in us. */
#define HOLE_FORGOTTEN 1000000u
/* When as many have been judged, what was before counts half. */
#define JUDGED_MOST 512u
/* Holding pays while so many segments come late for each event of loss: to be told late of a loss costs a sender more
 * than to take a late segment for lost, which it finds out. */
#define LATE_PER_LOSS 4u
/* Of 256 late segments so many are to have come within the hold. */
#define WITHIN_HOLD 253u
/* Of what it finds each sender tells its network so many, so that none speaks for all. */
#define TAUGHT_MOST 16u
/* What a network knows counts as much as so many of a new sender's own, which soon outweigh it. */
#define INHERITED 16u

/* A hole in what has come of a connection. */
struct hole {
	u32 start;    /* the first sequence number that is missing */
	u32 end;      /* the first behind it that is not */
	u32 stamp;    /* TSval of the segment that showed it */
	u32 found_us; /* when that came */
	u32 recovery; /* once it is refilled: in which of the sender's recoveries */
};

/* What is worked with while a segment is looked at. In memory, as verifiers follow every value that a local variable may
 * have. */
struct work {
	struct hole filled; /* the hole that it fills */
	struct hole parts[HOLE_PARTS]; /* what is to be put among the holes */
	u32 count;        /* how many these are */
	u32 refilled;     /* a bit each, as in `holes` */
	u32 which;        /* the bit of the hole that it fills; 0 if it fills none */
	u32 is_original;  /* it is what was missing, and came late */
	u32 is_lost;      /* there was an event of loss */
};

/* What a receiver misses. All zero at first. */
struct holes {
	struct work work;
	struct hole hole[HOLES];
	u32 open;         /* a bit each: nothing has come */
	u32 refilled;     /* a bit each: retransmitted, and whether the original is late is not known yet */
	u32 recoveries;   /* of the sender, so far: of what it had sent when it began one it reduces its window once */
	u32 recovered;    /* what it had sent by then ends here (`RecoveryPoint`, RFC 6675) */
	u32 counted;      /* the last of them that counts as an event of loss */
	u32 found;        /* whether a hole was ever found, */
	u32 found_end;    /* and the end of the last */
	u32 overflowed;   /* whether two were so close that a queue must have overflowed */
	u32 acknowledged; /* what the sender was told last */
	u32 window;       /* and the window field with it */
	u32 told;         /* whether it was told anything */
	u32 repaired;     /* whether retransmissions have come, and no acknowledgement has gone since: */
	u32 repair_us;    /* when the first of these came */
	u32 repaired_us;  /* and when the last did */
	u32 twice_left;   /* what came twice and was not told, as it lies behind a hole that is kept: from here on, */
	u32 twice_right;  /* up to here; the same if there is nothing */
	u32 kept;         /* whether the last acknowledgement was to tell more than the sender was told, */
	u32 due_us;       /* and when more of it may be told: it is to go again then, as nothing else may make one go */
};

/* How late segments come by a link. All zero at first. */
struct lateness {
	u16 late[LATENESS_BUCKETS]; /* those that came so many steps late */
	u16 lost;         /* events of loss, and segments later than HOLD_MOST */
	u16 judged;       /* both, since they last counted half */
	u16 taught;       /* of a sender: of how many of these its network has been told */
	u16 unused;
	u32 hold_us;      /* how long holes are to be kept from senders; 0: not at all */
};

/* Blocks of the SACK option (RFC 2018): a header has room for four. */
#define SACK_BLOCKS 4

/* What an acknowledgement says. */
struct acknowledgement {
	u32 number;       /* the next that is expected */
	u32 window;       /* the header's field */
	u32 blocks;       /* of SACK */
	u32 told;         /* those of them that are left: the others end where they begin */
	u32 left[SACK_BLOCKS]; /* the first of each, and what follows it */
	u32 right[SACK_BLOCKS];
};

/* What is to become of one. */
enum telling {
	TELL,     /* it goes as it is */
	TELL_LESS, /* with fewer or shorter blocks of SACK */
	TELL_TWICE, /* with one that tells what came twice, in place of the first if there was any */
	TELL_NOT, /* it says nothing else, and does not go */
};

/* Whether sequence number or time `a` is before `b`. */
CC_INLINE int precedes(u32 a, u32 b)
{
	return (s32)(a - b) < 0;
}

/* Whether `a` is less than `b`, 1 or 0, for numbers below 2^31. Without a branch: verifiers follow each. */
CC_INLINE u32 is_less(u32 a, u32 b)
{
	u32 difference = a - b;

	CC_OPAQUE(difference);
	return difference >> 31;
}

/* How long to hold, by what was judged. */
CC_INLINE u32 lateness_hold(const struct lateness *lateness)
{
	u32 late = 0, within = 0, steps = 0;

	for (int i = 0; i < LATENESS_BUCKETS; i++)
		late += lateness->late[i];
	if (!late || late < LATE_PER_LOSS * lateness->lost)
		return 0;
	for (int i = 0; i < LATENESS_BUCKETS; i++) {
		within += lateness->late[i];
		steps += is_less(within * 256, late * WITHIN_HOLD);
	}
	/* To the end of the step, and one more: the acknowledgement follows the segment. */
	return min32((steps + 2) * LATENESS_STEP, HOLD_MOST);
}

/* What a sender of which nothing is known begins with: what its network knows, if by that holes are to be kept. Losses
 * alone are nothing to begin with, as they are told at once anyway. Where nothing is known of the network either, what is
 * missing is waited for until something is, or until a loss is certain: told at once, late segments cost the sender its
 * slow start, as it finds out only after having reduced again. */
CC_INLINE void lateness_begin(struct lateness *lateness, const struct lateness *network)
{
	u32 all = network->judged, judged = 0;

	if (!all)
		lateness->hold_us = HOLD_MOST;
	if (!network->hold_us || !all)
		return;
	/* Rounded up: a hold must be long enough for the latest, too. */
	for (int i = 0; i < LATENESS_BUCKETS; i++) {
		u32 late = (network->late[i] * INHERITED + all - 1) / all;

		lateness->late[i] = late;
		judged += late;
	}
	lateness->lost = (network->lost * INHERITED + all - 1) / all;
	lateness->judged = judged + lateness->lost;
	lateness->hold_us = network->hold_us;
}

/* What a segment has shown: one came that others had overtaken by `late_us`, if `is_late`; and there was an event of
 * loss, if `is_lost`. Whether it was anything. */
CC_INLINE int lateness_judge(struct lateness *lateness, int is_late, u32 late_us, int is_lost)
{
	u32 bucket = late_us / LATENESS_STEP;

	if (!is_late && !is_lost)
		return 0;
	if (is_lost)
		lateness->lost++;
	/* Its bounds are to be checked on itself. */
	CC_OPAQUE(bucket);
	if (is_late && bucket < LATENESS_BUCKETS)
		lateness->late[bucket]++;
	else if (is_late)
		lateness->lost++;
	lateness->judged++;
	if (lateness->judged >= JUDGED_MOST) {
		for (int i = 0; i < LATENESS_BUCKETS; i++)
			lateness->late[i] /= 2;
		lateness->lost /= 2;
		lateness->judged = JUDGED_MOST / 2;
	}
	lateness->hold_us = lateness_hold(lateness);
	return 1;
}

/* Everything is in memory, and nothing is known of it. In each round of a loop: verifiers follow what registers hold. */
#define IN_MEMORY() __asm__ volatile("" : : : "memory")

/* One more to be put among the holes. */
CC_INLINE void work_add(struct work *work, u32 start, u32 end, u32 refilled)
{
	u32 place = work->count;

	if (place >= HOLE_PARTS)
		return;
	work->parts[place] = work->filled;
	work->parts[place].start = start;
	work->parts[place].end = end;
	work->refilled |= refilled << place;
	work->count = place + 1;
}

/* A hole has been refilled. That begins a recovery of the sender's, unless it had sent what was missing when it began the
 * last: what it sends first in one comes behind all that it had sent before. */
CC_INLINE void holes_refill(struct holes *holes, struct hole *hole, u32 highest)
{
	if (!holes->recoveries || !precedes(hole->start, holes->recovered)) {
		holes->recoveries++;
		holes->recovered = highest;
	}
	hole->recovery = holes->recoveries;
}

/* The retransmission of what a hole of this age had missed has come. If the sender took as long to send it, since it was told,
 * as holes are kept, there is a queue, and what is in it comes for as long: acknowledgements will go when they are to. */
CC_INLINE void holes_repair(struct holes *holes, u32 age_us, u32 hold_us, u32 now_us)
{
	if (age_us < 2 * hold_us)
		return;
	if (!holes->repaired)
		holes->repair_us = now_us;
	holes->repaired = 1;
	holes->repaired_us = now_us;
}

/* The original of a hole that was refilled is awaited no longer: whether that is an event of loss, the first of its
 * recovery. */
CC_INLINE u32 holes_lost(struct holes *holes, const struct hole *hole)
{
	if (!precedes(holes->counted, hole->recovery))
		return 0;
	holes->counted = hole->recovery;
	return 1;
}

/* The last of these is one with what was refilled right before it of the same hole: of what a queue has dropped there may be
 * more than there are places. */
CC_INLINE void holes_join(struct holes *holes)
{
	u32 bit = 1, last = holes->work.count - 1;

	if (last >= HOLE_PARTS || !(holes->work.refilled >> last & 1))
		return;
	for (int i = 0; i < HOLES; i++, bit <<= 1) {
		struct hole *hole = &holes->hole[i];

		IN_MEMORY();
		if (!(holes->refilled & bit) || hole->end != holes->work.parts[last].start ||
		    hole->found_us != holes->work.parts[last].found_us ||
		    hole->recovery != holes->work.parts[last].recovery)
			continue;
		hole->end = holes->work.parts[last].end;
		holes->work.count = last;
		return;
	}
}

/* Puts as many of these as there are places for among the holes. */
CC_INLINE void holes_add(struct holes *holes)
{
	u32 bit = 1;

	for (int i = 0; i < HOLES; i++, bit <<= 1) {
		u32 last;

		IN_MEMORY();
		last = holes->work.count - 1;
		if ((holes->open | holes->refilled) & bit || last >= HOLE_PARTS)
			continue;
		holes->hole[i] = holes->work.parts[last];
		if (holes->work.refilled >> last & 1)
			holes->refilled |= bit;
		else
			holes->open |= bit;
		holes->work.count = last;
	}
}

/* Data has come: from `sequence` up to `end`, with the timestamp `stamp`, when all that had come before ends at
 * `highest`. What comes in order while nothing is missing need not be told. Of several holes that one segment fills,
 * which none does unless what lies between them comes twice, one is judged. `network` is the sender's. */
CC_INLINE void holes_came(struct holes *holes, struct lateness *lateness, struct lateness *network, u32 sequence,
			  u32 end, u32 highest, u32 stamp, u32 now_us)
{
	struct work *work = &holes->work;
	u32 bit = 1, start, until, was_refilled, late_us;

	work->count = work->refilled = work->which = work->is_original = work->is_lost = 0;
	for (int i = 0; i < HOLES; i++, bit <<= 1) {
		const struct hole *hole = &holes->hole[i];
		u32 age;

		IN_MEMORY();
		age = now_us - hole->found_us;
		if (!((holes->open | holes->refilled) & bit)) {
			continue;
		} else if (holes->refilled & bit && age > ORIGINAL_AWAITED) {
			holes->refilled &= ~bit;
			work->is_lost |= holes_lost(holes, hole);
		} else if (age > HOLE_FORGOTTEN) {
			holes->open &= ~bit;
		} else if (precedes(sequence, hole->end) && precedes(hole->start, end)) {
			/* A second retransmission says nothing new. */
			if (holes->refilled & bit && precedes(hole->stamp, stamp))
				continue;
			work->which = bit;
			work->filled = *hole;
		}
	}
	IN_MEMORY();
	if (work->which) {
		was_refilled = (holes->refilled & work->which) != 0;
		holes->open &= ~work->which;
		holes->refilled &= ~work->which;
		work->is_original = !precedes(work->filled.stamp, stamp);
		start = work->filled.start;
		until = work->filled.end;
		/* What it has not filled stays, before and behind. */
		if (precedes(start, sequence)) {
			work_add(work, start, sequence, was_refilled);
			start = sequence;
		}
		if (precedes(end, until)) {
			work_add(work, end, until, was_refilled);
			until = end;
		}
		if (!work->is_original) {
			holes_repair(holes, now_us - work->filled.found_us, lateness->hold_us, now_us);
			holes_refill(holes, &work->filled, highest);
			if (now_us - work->filled.found_us > ORIGINAL_AWAITED)
				work->is_lost |= holes_lost(holes, &work->filled);
			else
				work_add(work, start, until, 1);
		}
	} else if (precedes(highest, sequence)) {
		work->filled.stamp = stamp;
		work->filled.found_us = now_us;
		if (holes->found && highest - holes->found_end < OVERFLOW_APART)
			holes->overflowed = 1;
		holes->found = 1;
		holes->found_end = sequence;
		work_add(work, highest, sequence, 0);
	}
	holes_join(holes);
	holes_add(holes);
	IN_MEMORY();
	late_us = now_us - work->filled.found_us;
	if (!lateness_judge(lateness, work->is_original, late_us, work->is_lost))
		return;
	if (lateness->taught < TAUGHT_MOST) {
		lateness->taught++;
		lateness_judge(network, work->is_original, late_us, work->is_lost);
	}
}

/* What is kept may be told at `at_us`, if not before. */
CC_INLINE void holes_due(struct holes *holes, u32 at_us)
{
	if (!holes->kept || precedes(at_us, holes->due_us))
		holes->due_us = at_us;
	holes->kept = 1;
}

/* Where the first hole begins that the sender is not to be told of yet, if there is any: nothing from there on is
 * to be said. */
CC_INLINE int holes_keep(struct holes *holes, u32 number, u32 hold_us, u32 now_us, u32 *from)
{
	int kept = 0;
	u32 bit = 1;

	for (int i = 0; i < HOLES; i++, bit <<= 1) {
		const struct hole *hole = &holes->hole[i];

		if (!(holes->open & bit) || precedes(hole->start, number) || now_us - hole->found_us >= hold_us)
			continue;
		if (!kept || precedes(hole->start, *from))
			*from = hole->start;
		holes_due(holes, hole->found_us + hold_us);
		kept = 1;
	}
	return kept;
}

/* Whether retransmissions that have come are not to be told of yet: as long as holes are kept that were found before. A sender that
 * learns of one takes for lost all that it had sent before it and has not heard of (RFC 8985, 6.2): the late segments, and
 * what has come behind them. */
CC_INLINE int holes_hide_repair(struct holes *holes, u32 number, u32 hold_us, u32 now_us)
{
	int hide = 0;
	u32 bit = 1;

	if (!holes->repaired || now_us - holes->repair_us >= REPAIR_MOST)
		return 0;
	for (int i = 0; i < HOLES; i++, bit <<= 1) {
		const struct hole *hole = &holes->hole[i];

		if (holes->open & bit && !precedes(hole->start, number) && now_us - hole->found_us < hold_us &&
		    !precedes(holes->repaired_us, hole->found_us)) {
			holes_due(holes, hole->found_us + hold_us);
			hide = 1;
		}
	}
	return hide;
}

/* Whether the first block tells what came twice and lies behind a hole: it is within the second (RFC 2883, 4). */
CC_INLINE int tells_twice_behind(const struct acknowledgement *ack)
{
	return ack->blocks > 1 && !precedes(ack->left[0], ack->left[1]) && !precedes(ack->right[1], ack->right[0]);
}

/* Whether the first block tells what came twice of that which is acknowledged. */
CC_INLINE int tells_twice_before(const struct acknowledgement *ack)
{
	return ack->blocks && !precedes(ack->number, ack->right[0]);
}

/* Tells what came twice behind a hole that was kept, in front, now that all before is acknowledged, if it does not tell of
 * something else already. A sender that hears nothing of its tail loss probe takes it for what has repaired a loss (RFC
 * 8985, 7.4). */
CC_INLINE int holes_tell_twice(struct holes *holes, struct acknowledgement *ack)
{
	if (holes->twice_left == holes->twice_right || precedes(ack->number, holes->twice_right) ||
	    tells_twice_before(ack))
		return 0;
	/* In place of the first: what that tells the next ones tell again (RFC 2018, 4). */
	if (!ack->blocks)
		ack->blocks = ack->told = 1;
	else if (ack->left[0] == ack->right[0])
		ack->told++;
	ack->left[0] = holes->twice_left;
	ack->right[0] = holes->twice_right;
	holes->twice_left = holes->twice_right;
	/* Verifiers follow each number that it can be. */
	CC_OPAQUE(ack->told);
	return 1;
}

/* An acknowledgement without data is about to go. Blocks of SACK that must not be told yet are taken out of it, or cut.
 * One that tells of what came twice (RFC 2883) is told; what came twice behind a hole that is kept is told with the
 * acknowledgement that passes it. What tells of a retransmission waits for the holes that were there before it. While
 * nothing `is_known`, a sender is told at once that has overflowed a queue. */
CC_INLINE enum telling holes_tell(struct holes *holes, u32 hold_us, int is_known, struct acknowledgement *ack, u32 now_us)
{
	int fresh = !holes->told || precedes(holes->acknowledged, ack->number) || holes->window != ack->window;
	int waits = hold_us && (is_known || !holes->overflowed);
	u32 from = 0;
	int less = 0;

	ack->told = ack->blocks;
	holes->kept = 0;
	if (waits && is_known && !tells_twice_before(ack) && holes_hide_repair(holes, ack->number, hold_us, now_us))
		return TELL_NOT;
	if (waits && holes_keep(holes, ack->number, hold_us, now_us, &from)) {
		if (tells_twice_behind(ack) && precedes(from, ack->right[0])) {
			holes->twice_left = ack->left[0];
			holes->twice_right = ack->right[0];
		}
		for (u32 i = 0; i < SACK_BLOCKS; i++) {
			if (i >= ack->blocks || !precedes(from, ack->right[i]))
				continue;
			less = 1;
			if (precedes(ack->left[i], from)) {
				ack->right[i] = from;
			} else {
				ack->right[i] = ack->left[i];
				ack->told--;
			}
		}
	}
	holes->kept = less;
	if (less && !ack->told && !fresh)
		return TELL_NOT;
	holes->told = 1;
	holes->repaired = 0;
	holes->acknowledged = ack->number;
	holes->window = ack->window;
	if (holes_tell_twice(holes, ack))
		return TELL_TWICE;
	return less ? TELL_LESS : TELL;
}
