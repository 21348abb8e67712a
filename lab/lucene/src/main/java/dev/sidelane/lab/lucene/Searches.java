// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.lab.lucene;

import java.io.Closeable;
import java.io.IOException;
import java.nio.file.Path;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.BooleanClause.Occur;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.PhraseQuery;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.search.TopDocs;
import org.apache.lucene.store.MMapDirectory;

/** Search engine on the index, for the queries {@code and w1 w2}, {@code or w1 w2} and {@code phrase w1 w2}. */
final class Searches implements Closeable {
    private static final int TOP = 10;

    private final DirectoryReader reader;
    private final IndexSearcher searcher;

    Searches(Path index) throws IOException {
        reader = DirectoryReader.open(new MMapDirectory(index));
        searcher = new IndexSearcher(reader);
        // Disables the cache, so that every request does its search.
        searcher.setQueryCache(null);
    }

    /** Returns the best-matching documents as JSON; null if the text is no query. */
    String search(String text) throws IOException {
        Query query = parse(text.split(" "));
        if (query == null) {
            return null;
        }
        TopDocs found = searcher.search(query, TOP);
        StringBuilder json = new StringBuilder("{\"hits\":").append(found.totalHits.value).append(",\"top\":[");
        for (int place = 0; place < found.scoreDocs.length; place++) {
            json.append(place == 0 ? "" : ",").append(found.scoreDocs[place].doc);
        }
        return json.append("]}").toString();
    }

    private static Query parse(String[] words) {
        if (words.length < 2) {
            return null;
        }
        return switch (words[0]) {
            case "and" -> each(words, Occur.MUST);
            case "or" -> each(words, Occur.SHOULD);
            case "phrase" -> phrase(words);
            default -> null;
        };
    }

    private static Query each(String[] words, Occur occur) {
        BooleanQuery.Builder query = new BooleanQuery.Builder();
        for (int place = 1; place < words.length; place++) {
            query.add(new TermQuery(new Term(Documents.TEXT, words[place])), occur);
        }
        return query.build();
    }

    private static Query phrase(String[] words) {
        PhraseQuery.Builder query = new PhraseQuery.Builder();
        for (int place = 1; place < words.length; place++) {
            query.add(new Term(Documents.TEXT, words[place]));
        }
        return query.build();
    }

    @Override
    public void close() throws IOException {
        reader.close();
    }
}
