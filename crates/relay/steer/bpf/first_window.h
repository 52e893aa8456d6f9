/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What user space and the program that sets initial windows tell each other by a socket's storage: a number of packets,
 * and what became of it. */
#pragma once

#define MOST_FIRST_WINDOW 0xffff
#define FIRST_WINDOW_SET 0x10000
#define FIRST_WINDOW_REFUSED 0x10001
