/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the maps hold: all that the program and user space say to each other. Rust's side of it (`src/intf.rs`) is
 * generated from this, and refuses padding: what would be some is a field.
 *
 * Integers are in the byte order of the host but for `__be`, which are in that of the network. Times in ns are
 * CLOCK_MONOTONIC. What is said to be whether something is so is 0 or 1. */
#pragma once

#include <linux/types.h>

/* Relays that may be registered at a time, the one that takes over included, and workers of each. */
#define GENERATIONS 2
#define WORKERS 64
/* A listener per worker and family, IPv4 before IPv6. */
#define FAMILIES 2
#define LISTENERS (GENERATIONS * WORKERS * FAMILIES)
/* Processors whose new connections a worker of their own may take. */
#define PROCESSORS 1024
/* Connections whose SYN is remembered. */
#define SYN_RECORDS 65536
/* Clients whose rate of SYNs is remembered. */
#define CLIENTS 65536
/* Prefixes in each policy. */
#define PREFIXES 16384
/* Groups of clients, and servers of each of them, of which it is decided how often to split. */
#define GROUPS 1024
#define PLACES 65536
/* Established connections that are accounted for at a time. */
#define FLOWS 131072
/* Bytes of ended ones' records that may wait for user space. */
#define RECORDS (1 << 20)
/* Bytes of held SYNs that may. */
#define HELD_SYNS (1 << 20)
/* Prefixes of servers whose return path is in doubt. */
#define ROUTES 4096
/* SYNs that are on their way through this host's rules, and what was found of others. */
#define CONSULTATIONS 4096
#define PERMISSIONS 65536
/* Servers that have answered lately. */
#define ANSWERING 65536
/* Acknowledgements that are to go again, and bytes of those that go now. */
#define REMINDERS 8192
#define DUE_REMINDERS (1 << 18)
/* Datagrams of split connections whose fragments are on their way in. */
#define DATAGRAMS 4096
/* Clients of which it is known how late what they send comes. */
#define LATENESSES 16384
/* Networks of such clients. */
#define LATE_NETWORKS 4096

/* Places of servers of which some have answered with a code point. */
#define MARKED_SERVERS 4096

/* An IP address; IPv4 as IPv4-mapped IPv6 (RFC 4291, 2.5.5.2). */
struct address {
	__be32 word[4];
};

/* The key of a policy. */
struct prefix {
	__u32 bits; /* counted in the 128 of `address`; those behind are 0 */
	struct address address;
};

/* What is to become of the connections of a client, or to a server. */
enum choice {
	PASS,
	SPLIT_BY_POLICY, /* if nothing else speaks against it */
	CONFIRM,         /* likewise, once the server has answered */
	LEARN,           /* likewise, unless it has answered others lately */
	SPLIT_ALWAYS,    /* a connection of the relay's own; plus the relay's generation */
};

/* A connection, named from the client's side whichever way a packet goes. */
struct connection {
	struct address client;
	struct address server;
	__be16 client_port;
	__be16 server_port;
};

/* What became of a SYN, or of a packet. Indices of `counts`. */
enum verdict {
	/* New connections. */
	SPLIT,
	HELD,             /* until the server has answered; then SPLIT, or PASS_UNCONFIRMED */
	CONSULTED,        /* shown to this host's rules; HELD, or what they have made of it, then */
	PASS_CLIENT,      /* not of a client that is served */
	PASS_SERVER,      /* policy: the server */
	PASS_PORT,        /* policy: the port */
	PASS_DSCP,        /* policy: the code point */
	PASS_SIGNED,      /* its segments are signed, which only its ends can do (TCP-MD5, TCP-AO) */
	PASS_LOCAL,       /* to this host, or nowhere that it forwards to */
	PASS_HOLDOUT,     /* left alone for comparison */
	PASS_UNPROVEN,    /* the relay has found that what is steered does not arrive */
	PASS_NO_RELAY,    /* no live relay: none is registered, it hangs, or it drains */
	PASS_FULL,        /* the relay's limits, or its queues, are full */
	PASS_CLIENT_FULL, /* the client has as many as it may */
	PASS_RATE,        /* the client opens too many */
	PASS_TRANSLATED,  /* this host's rules send it elsewhere (DNAT) */
	PASS_ASYMMETRIC,  /* what the server answers may not come by here */
	PASS_UNREACHED,   /* steered before, but never reached the listener */
	PASS_UNCONFIRMED, /* held before, but the server refused, or has not answered */
	PASS_AGAIN,       /* a SYN that was passed before, sent again */
	/* Packets. */
	STEERED,          /* of a connection that is split */
	STEERED_ICMP,     /* about a connection that is split */
	NOT_STEERED,      /* given to a listener, but the kernel refused */
	FRAGMENT,         /* of TCP, and of no connection that is known to be split: passed */
	COOKIE,           /* acknowledgements of SYN cookies, which open a connection */
	REOPENED,         /* SYNs given to what a former connection left in TIME-WAIT */
	KEPT_BACK,        /* acknowledgements to clients that told of nothing but holes which may fill by themselves */
	TOLD_LESS,        /* those that told of such too, and do no more */
	TOLD_LATER,       /* those of both that went again, by themselves, when they might tell more */
	ASYMMETRIC,       /* prefixes of servers found to answer by another way */
	/* Accounts. */
	UNACCOUNTED,      /* connections that there was no room to account for */
	RECORD_LOST,      /* ended ones whose record user space was too slow to take */
	VERDICTS,
};

/* What is remembered of a SYN. */
struct syn_record {
	__u64 first_ns;   /* when its SYN came first */
	__u64 slot_ns;    /* when the slot of the holdout began that it was drawn in; 0 if it was drawn by itself */
	__u64 at_ns;      /* when it came, or when it went to the listener after it was held */
	__u32 sequence;   /* number of the SYN */
	__u32 answer;     /* what the server began its own sequence numbers after */
	__u32 listener;   /* index in `listeners`, if it was given to one */
	__u8 verdict;     /* enum verdict */
	__u8 release;     /* enum release; written by user space */
	__u8 because;     /* enum because, of `holdout` */
	__u8 answer_dscp; /* code point of the server's answer */
	__u32 interface;  /* index of the one that its SYN came in by */
	__u32 agreed;     /* what the client acknowledged with the handshake's last segment; 0 if that was not seen */
	__u32 answered;   /* what the server acknowledged with its answer; 0 as long as it has not */
	__u32 stage;      /* enum stage */
	__u16 holdout;    /* per mille of what it was drawn from; 0 if it was not */
	__u8 learns;      /* whether it is to be remembered that its server answers */
	__u8 unused[5];
};

/* What user space has found out of a server for which a client's SYN is held. */
enum release {
	NOT_YET,
	CONFIRMED,
	REFUSED,
};

/* The longest SYN that is held, from its IP header on. */
#define LONGEST_SYN 511

/* A SYN that is held, for user space to send it on its way. */
struct held {
	struct connection connection;
	__u32 worker;     /* its place in `workers` */
	__u64 at_ns;      /* when it came */
	__u16 length;     /* bytes of `syn` */
	__u8 dscp;        /* its code point, 0 to 63 */
	__u8 again;       /* whether it was held before */
	__u8 syn[LONGEST_SYN + 1]; /* from its IP header on */
	__u32 transport;  /* where in `syn` the TCP header begins */
	__u8 ethernet[6]; /* address that the frame was for; zeros on links without */
	__u8 confirm;     /* whether the server is to be asked; if not the SYN is released already */
	__u8 consulted;   /* whether this host's rules have seen it */
	__u32 interface;  /* index of the one that it came in by */
	__u32 unused;
};

/* The longest frame that is kept: an acknowledgement without data behind headers of links and IP. */
#define LONGEST_ACK 127

/* An acknowledgement that has not told a client all, for user space to send it once more by the relay's own link. */
struct kept_ack {
	__u16 length;     /* bytes of `frame` */
	__u16 network;    /* where in it the IP header begins; 0 on links without a header of their own */
	__u16 transport;  /* and where the TCP header does */
	__u16 unused;
	__u8 frame[LONGEST_ACK + 1];
};

/* Where a connection belongs: the clients that are treated alike, and its server. */
struct place {
	struct address server;
	__u32 group;
};

/* How many of the new connections of a place are left alone. What is decided anew holds from the next slot on, as a client
 * keeps its lot for a slot. */
struct chance {
	__u64 from_slot;  /* counted from the clock's beginning */
	__u16 before;     /* per mille, in slots before that one */
	__u16 after;      /* per mille, from then on */
	__u16 because_before; /* enum because */
	__u16 because_after;
};

/* Why so many are left alone. */
enum because {
	BY_POLICY,        /* the policy says so */
	UNKNOWN,          /* whether splitting harms is not known */
	FINE,             /* it does not */
	HARM,             /* it does */
	PINNED,           /* an operator has said so */
};

/* A client, and what it wants to connect to. */
struct permit {
	struct address client;
	struct address server;
	__be16 server_port;
	__u16 unused;
	__u32 interface;  /* index of the one that it comes in by */
};

/* What this host's rules have made of that. */
struct permission {
	__u64 until_ns;
	__u32 rules;      /* those of then; as in `settings` */
	__u32 translated; /* it goes elsewhere */
};

/* How far a connection has come. */
enum stage {
	ASKED,            /* the client's SYN was seen */
	ANSWERED,         /* the server's too */
	ACCOUNTED,        /* it is a connection, and in `flows`, or was */
};

/* One direction of a connection. */
struct course {
	__u64 bytes;      /* of payload, each once however often it was sent */
	__u64 first_ns;   /* when the first of them passed; 0 if none has */
	__u64 last_ns;    /* when the last one did that had not before */
	__u64 first_acknowledged_ns; /* when who they are for first acknowledged any; 0 if it has not */
	__u64 last_acknowledged_ns; /* when it acknowledged the last that it had not before */
	__u32 next;       /* the sequence number to come */
	__u32 finished;   /* whether its FIN has passed */
	__u32 base;       /* what is acknowledged before any payload is; 0 while that is not known */
	__u32 acknowledged; /* beyond that; the FIN counts as one */
};

/* How a connection ended. */
enum ending {
	OPEN,             /* it has not */
	FINISHED,         /* both sides' FINs have passed */
	RESET_BY_CLIENT,
	RESET_BY_SERVER,
	IDLE,             /* user space has given it up */
	REPLACED,         /* another one with the same addresses and ports was opened */
};

/* An established connection, and the record of an ended one. With the 56 bytes that the kernel puts before it in `flows` it
 * takes four cache lines of 64 bytes, of which each course has one. */
struct flow {
	struct connection connection;
	__u16 holdout;    /* as in `syn_record` */
	__u16 because;    /* likewise */
	__u32 verdict;    /* enum verdict, of its SYN */
	__u32 ending;     /* enum ending */
	__u32 sequence;   /* number of its SYN */
	__u16 settled;    /* `settings.epoch` of the relay whose sockets it has, as long as none of them was missed; or 0 */
	__u16 unused;
	__u64 start_ns;   /* when its SYN came first */
	__u64 end_ns;     /* when the packet passed that ended it */
	__u64 slot_ns;    /* as in `syn_record` */
	struct course up; /* from the client */
	struct course down;
	__u64 unused_too; /* fills the last line */
};

/* What is known of the way back from a prefix of servers. */
struct route {
	__u64 until_ns;   /* connections to it are passed so long */
};

/* Where a server listens. */
struct service {
	struct address server;
	__be16 port;
	__u16 unused;
};

/* A datagram that comes in fragments (RFC 791, 3.2; RFC 8200, 4.5). */
struct datagram {
	struct address source;
	struct address destination;
	__u32 id;         /* as it is in the header */
};

/* What a worker says of itself. */
struct worker {
	__u64 beat_ns;    /* when it last said so */
	__u32 room;       /* flows it would still take */
	__u32 open;       /* whether it takes any */
	__u32 flows;      /* that it has */
	__u32 unused;
};

/* A client's rate of SYNs, of which each takes a token. */
struct bucket {
	__u64 at_ns;      /* when the tokens were counted */
	__u64 tokens;     /* in billionths, so that a nanosecond at 1/s adds one */
};

/* What holds for all packets. */
struct settings {
	__u64 pass_dscp;  /* code points to leave alone, a bit each */
	__u64 patience_ns; /* age of a heartbeat at which its worker counts as dead */
	__u64 slot_ns;    /* for how long a client is held out or not; 0: each connection by itself */
	__u32 generation; /* the relay that takes new connections */
	__u32 workers[GENERATIONS]; /* of each relay */
	__u32 mark;       /* for packets to be delivered on this host; see leg.h for the two above it */
	__u32 holdout;    /* per mille of clients, for a slot each, or of new connections */
	__u32 seed;       /* of the choice of these, and of the names of connections */
	__u32 half_open;  /* half-open connections of a listener past which it gets no more */
	__u32 syn_rate;   /* new connections per second and client; 0 is no limit */
	__u32 syn_burst;  /* how many of these may come at once */
	__u32 translates; /* this host has rules that change addresses (NAT) */
	__u32 syn_cookies; /* a listener whose queue is full answers by cookies */
	__u32 consults;   /* this host's rules are asked */
	__u32 rules;      /* another number whenever they change */
	__u32 injectors[GENERATIONS]; /* interfaces by which the SYNs that each relay holds come back; 0 is none */
	__u32 by_loopback; /* what is delivered comes in by the loopback link */
	__u32 suspended;  /* by the relay of this generation, plus one; 0 is none */
	__u32 reordering_hold_us; /* how long holes are kept from clients at most */
	__u32 decides;    /* how many are left alone is decided by place; `holdout` is for where nothing is */
	__u16 epoch;      /* another one, and never 0, for each relay that takes over */
	__u16 bare;       /* nothing is accounted for nor decided by place, to measure what that costs; set by that alone */
};
