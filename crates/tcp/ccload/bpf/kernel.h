/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The few fields of kernel structures that the glue reads and writes, found by their names when a
 * program is loaded (CO-RE), and constants that no header of user space has. All of them are in
 * Linux 6.1 and later. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "congestion_ops.h"

#define AF_INET 2
#define AF_INET6 10

#define IPPROTO_TCP 6

#define SOL_SOCKET 1
#define SO_MAX_PACING_RATE 47

/* `sk_pacing_status`. */
#define SK_PACING_NONE 0
#define SK_PACING_NEEDED 1
/* No limit in `sk_max_pacing_rate`. */
#define NO_PACING_LIMIT (~0ul)

/* `ecn_flags` of a socket. */
#define TCP_ECN_DEMAND_CWR 4
/* A delayed acknowledgement waits (`icsk_ack.pending`). */
#define ICSK_ACK_TIMER 2

/* An unknown round-trip time in `rtt_min`. */
#define NO_RTT_MIN 0xffffffffu

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		__u8 u6_addr8[16];
		__be32 u6_addr32[4];
	} in6_u;
};

struct sock_common {
	__be32 skc_daddr;
	unsigned short skc_family;
	struct in6_addr skc_v6_daddr;
};

struct sock {
	struct sock_common __sk_common;
	__u32 sk_pacing_status;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	__u8 icsk_ca_state : 5;
	struct {
		__u8 pending;
	} icsk_ack;
	__u64 icsk_ca_priv[13];
};

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u16 tcp_header_len;
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 write_seq;
	__u32 snd_cwnd;
	__u32 snd_cwnd_clamp;
	__u32 snd_ssthresh;
	__u32 prior_ssthresh;
	__u32 prior_cwnd;
	__u32 mss_cache;
	__u32 packets_out;
	__u32 max_packets_out;
	__u32 sacked_out;
	__u32 lost_out;
	__u32 retrans_out;
	__u32 delivered;
	__u32 delivered_ce;
	__u32 lost;
	__u32 srtt_us;
	__u32 data_segs_out;
	__u32 rcv_nxt;
	__u8 ecn_flags;
	__u64 tcp_mstamp;
	__u64 tcp_clock_cache;
	__u64 tcp_wstamp_ns;
	struct minmax rtt_min;
	__u8 is_cwnd_limited : 1;
};

struct ack_sample {
	__u32 pkts_acked;
	__s32 rtt_us;
	__u32 in_flight;
};

struct rate_sample {
	__u32 prior_delivered;
	__s32 delivered;
	long interval_us;
	long rtt_us;
	__s32 losses;
	__u32 acked_sacked;
	__u32 prior_in_flight;
	bool is_app_limited;
};

#pragma clang attribute pop
