/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* For controls of CC_WINDOW that answer with a rate never to exceed: the stack paces them at a rate of its
 * own, and keeps below SO_MAX_PACING_RATE. To be included before glue.h. */
#pragma once

#include "kernel.h"

#include "cc.h"

/* A rate of 0 is no limit. What the application has set itself is lost once the control had a rate. */
static __always_inline void cap_pacing(struct sock *sk, const struct cc *cc)
{
	unsigned long rate = cc->pacing_rate ? cc->pacing_rate : NO_PACING_LIMIT;
	__u32 value;

	/* The option takes 32 bits here, of which the greatest number is no limit. */
	if (rate >= 0xffffffff)
		rate = NO_PACING_LIMIT;
	if (rate == sk->sk_max_pacing_rate)
		return;
	value = rate;
	bpf_setsockopt(sk, SOL_SOCKET, SO_MAX_PACING_RATE, &value, sizeof(value));
}

#ifndef SET_PACING
#define SET_PACING(sk, cc) cap_pacing(sk, cc)
#endif
