"""The prepared corpus, made on the nodes of a cluster: the same bytes as on one machine.

Consecutive pieces of the text are a part. Each part is split by one task, which numbers the words on its own. Then
exact duplicates are found, one range of document hashes a task; the counts of words are merged in a tree, whose nodes
have the merged number of each word; the words of each part are renumbered, and its lines sorted by their keys, which
depend on the number of lines before the part; and the sorted parts are merged, one range of keys a task.

What a task makes is a folder on storage that all nodes see, which is there whole or not at all. So a task can be made
again on another node, and a command that was killed goes on with what is there.
"""
